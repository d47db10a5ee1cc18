// Package demo shows the inventory at work: it starts an etcd and a Postgres, and on them either
// workers that sell, one of which is stopped between its read and its write, with the fence
// and without ([Run]), or a server to try ([Try]).
package demo
