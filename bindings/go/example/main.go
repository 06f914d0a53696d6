// Example is a small server: its requests, and a database call of each, are recorded. Look at it
// with `topdeck top`, or stop it with kill -9 and run `topdeck post-mortem`.
package main

import (
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/topdeck/topdeck/bindings/go"
	"github.com/topdeck/topdeck/bindings/go/topdeckhttp"
)

func main() {
	address := flag.String("listen", "127.0.0.1:8080", "address of the server")
	flag.Parse()
	defer topdeck.Close()
	storage := topdeck.NewHistogram(topdeck.Description{Name: "storage_read_duration", Unit: "ns",
		Help: "Time of a read from storage.", Role: topdeck.RoleTiming})
	version := topdeck.NewText(topdeck.Description{Name: "version"})
	version.Set("1.0.0")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, r *http.Request) {
		timer := storage.Start()
		// One in a hundred is slow.
		if rand.IntN(100) == 0 {
			time.Sleep(20 * time.Millisecond)
		}
		timer.Stop()
		fmt.Fprintln(w, "item", r.PathValue("id"))
	})
	if path, err := topdeck.Path(); err != nil {
		log.Print("no metrics: ", err)
	} else {
		log.Print("look at it with `topdeck top`; the file is ", path)
	}
	log.Fatal(http.ListenAndServe(*address, topdeckhttp.Handler("", mux)))
}
