// Command go-tls is a server and a client of HTTPS, whose TLS is crypto/tls.
//
// The client sends requests one after the other on each connection. It prints the time of each one in nanoseconds, from
// before it sends to after it has read the body.
package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const usage = `usage: go-tls server ADDRESS
       go-tls client [http2] URL CONNECTIONS REQUESTS [BODY_BYTES]`

func main() {
	log.SetFlags(0)
	arguments := append(os.Args[1:], "", "", "")
	var err error
	switch {
	case arguments[0] == "server":
		err = serve(arguments[1])
	case arguments[0] == "client" && arguments[1] == "http2":
		err = request(true, arguments[2:])
	case arguments[0] == "client":
		err = request(false, arguments[1:])
	default:
		log.Fatal(usage)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve answers /bytes/N with N bytes, /close/N without a length, and /echo with the body.
func serve(address string) error {
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/bytes/", func(out http.ResponseWriter, in *http.Request) {
		body := make([]byte, size(in))
		out.Header().Set("Content-Length", strconv.Itoa(len(body)))
		out.Write(body)
	})
	// The end of the connection is the end of the body.
	mux.HandleFunc("/close/", func(out http.ResponseWriter, in *http.Request) {
		out.Header().Set("Connection", "close")
		out.Header().Set("Transfer-Encoding", "identity")
		out.Write(make([]byte, size(in)))
	})
	mux.HandleFunc("/echo", func(out http.ResponseWriter, in *http.Request) {
		body, err := io.ReadAll(in.Body)
		if err != nil {
			out.WriteHeader(http.StatusBadRequest)
			return
		}
		out.Write(body)
	})
	server := http.Server{
		Addr:      address,
		Handler:   mux,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	return server.ListenAndServeTLS("", "")
}

func size(in *http.Request) int {
	parts := strings.Split(in.URL.Path, "/")
	number, _ := strconv.Atoi(parts[len(parts)-1])
	return number
}

func request(isHTTP2 bool, arguments []string) error {
	url := arguments[0]
	connections, err := strconv.Atoi(arguments[1])
	if err != nil {
		return err
	}
	requests, err := strconv.Atoi(arguments[2])
	if err != nil {
		return err
	}
	body := 0
	if len(arguments) > 3 && arguments[3] != "" {
		if body, err = strconv.Atoi(arguments[3]); err != nil {
			return err
		}
	}
	var all sync.WaitGroup
	times, failures := make([][]time.Duration, connections), make([]error, connections)
	for index := range connections {
		all.Add(1)
		go func() {
			defer all.Done()
			client := &http.Client{Transport: &http.Transport{
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
				ForceAttemptHTTP2: isHTTP2,
			}}
			defer client.CloseIdleConnections()
			for range requests {
				start := time.Now()
				if failures[index] = once(client, url, body); failures[index] != nil {
					return
				}
				times[index] = append(times[index], time.Since(start))
			}
		}()
	}
	all.Wait()
	var out bytes.Buffer
	for index, of := range times {
		if failures[index] != nil {
			return failures[index]
		}
		for _, time := range of {
			fmt.Fprintln(&out, time.Nanoseconds())
		}
	}
	_, err = os.Stdout.Write(out.Bytes())
	return err
}

func once(client *http.Client, url string, body int) error {
	method, content := http.MethodGet, io.Reader(nil)
	if body > 0 {
		method, content = http.MethodPost, bytes.NewReader(make([]byte, body))
	}
	request, err := http.NewRequest(method, url, content)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d", url, response.StatusCode)
	}
	return nil
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(48 * time.Hour),
		DNSNames:     []string{"localhost"},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: key}, nil
}
