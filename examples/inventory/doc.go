// Command inventory allocates a scarce product to orders, from several worker
// processes, through Fencekit.
//
// Allocating reads the lots on hand and the open reservations, decides which
// lots an order gets, oldest first, and writes reservation lines. What is written
// depends on rows that are only read, so no single atomic UPDATE can express it,
// and a worker that stops between its read and its write decides on stock that
// others have sold since. See Allocate for the part to lift out.
//
// "inventory demo" starts an etcd, a Postgres and three workers, stops one of
// them at that point until its lease has expired, and shows what becomes of its
// write: with the fence, and without.
//
// "inventory serve" is the HTTP service on top, described by openapi.yaml and in
// README.md; "inventory try" starts it with an etcd and a Postgres of its own.
package main
