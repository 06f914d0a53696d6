module topdeck/go-tls

go 1.24
