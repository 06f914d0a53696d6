//go:build !linux

package topdeck

import "time"

var epoch = time.Now()

func now() uint64 { return uint64(time.Since(epoch)) }
