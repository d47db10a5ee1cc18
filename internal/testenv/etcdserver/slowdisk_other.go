//go:build !linux

package etcdserver

import "errors"

func slowDisk(string) error { return errors.New("testenv: etcd: a slow disk needs Linux") }
