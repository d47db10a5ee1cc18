//go:build !linux

package main

import "errors"

func slowDisk(string) error { return errors.New("a slow disk needs Linux") }
