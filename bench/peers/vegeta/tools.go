// Pins the version of vegeta that `make bench` builds.

//go:build tools

package tools

import _ "github.com/tsenart/vegeta/v12"
