// Command inventory allocates a scarce product to orders, from several worker
// processes, through Fencekit.
//
// "inventory demo" starts an etcd, a Postgres and three workers, stops one of
// them between its read and its write until its lease has expired, and shows what becomes
// of that write: with the fence, and without.
//
// "inventory serve" is an HTTP service, described by service/openapi.yaml and in
// README.md; "inventory try" starts it with an etcd and a Postgres of its own. The code to
// copy is package service; package demo starts servers, and stops workers.
package main
