// Pins the version of k6 that `make bench` builds.

//go:build tools

package tools

import _ "go.k6.io/k6"
