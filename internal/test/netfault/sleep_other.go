//go:build !linux

package netfault

import "time"

func sleep(d time.Duration) { time.Sleep(d) }
