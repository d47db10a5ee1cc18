// Command fencectl looks after Fencekit's side of a database: its schema, and
// what this build of it is. It also runs the chaos suite, on servers that it
// starts itself.
//
//	fencectl migrate up        bring the schema up to date
//	fencectl migrate status    say which migrations are applied
//	fencectl migrate get       print the migrations' SQL
//	fencectl chaos list        list scenarios, groups and kinds of faults
//	fencectl chaos run         run scenarios, and judge them
//	fencectl chaos verify      judge saved runs again
//	fencectl chaos compare     put two suites side by side
//	fencectl version           print versions
//
// Data goes to stdout, everything else to stderr. The exit code is a contract:
// 0 ok, 1 a property is violated, 2 inconclusive, 3 environment not ready, 64
// usage. Passwords are never printed; for that, arguments that may hold one are
// not repeated in errors.
//
// Each command has a file of its own; flags.go, database.go, output.go and
// exit.go hold what all of them share.
package main
