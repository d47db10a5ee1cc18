// Package fencekit is the front door of Fencekit: a Client, which is a Guard on Postgres, with its locks there
// or in another lock service, in one call. Under a Guard, a process that was paused, cut off or is late can't change data
// after another process has taken over.
//
//	g, err := fencekit.New(pool, nil) // or with a Config, whose Locker may be etcd.New(client, nil)
//	...
//	err = guard.Do(ctx, g, "sku/42", func(ctx context.Context, tx pgx.Tx) error {
//		... // read, decide, write
//	})
//
// The functions that run under a Guard are in package guard: Do, Value, Exec, Hold. Code
// that takes a Runner is the same under its own lock, in a Hold, for an elected leader
// and for a grant that came with a request. What else there is:
//
//   - guard: the calls, their options, and the errors that they return.
//   - guard/guardtest: tests of code like yours, with a lock service in memory.
//   - fence: tokens, grants, leases, elections.
//   - fence/pglock, fence/etcd or another lock service, and storage/postgres: the two parts that a Guard here is
//     made of; use them with guard.New where a process needs only one, such as a receiver of grants.
//   - guardhttp, guardgrpc: grants in requests, and errors as status codes.
//   - chaos: faults, and checks that your functions hold under them.
package fencekit
