module github.com/topdeck/topdeck/bindings/go

go 1.23
