// Package service is the inventory's HTTP service: the part of the example to copy from. It
// uses what Fencekit exports and nothing else.
//
// Allocating reads the lots on hand and the open reservations, decides which
// lots an order gets, oldest first, and writes reservation lines. What is written
// depends on rows that are only read, so no single atomic UPDATE can express it,
// and a server that stops between its read and its write decides on stock that
// others have sold since. [Allocate] is the part to lift out; deduct.go runs it.
package service
