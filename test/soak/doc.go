// Package soak holds tests that run the whole of Fencekit against real servers for
// a long time, under random faults, and then look at the data alone.
//
// TestTransfers_SumsAreExactUnderFaults moves amounts between accounts, from several
// processes, each operation under the grants of 1 to 20 resources. Meanwhile
// COMMITs and their answers are cut, backends are terminated, workers are stopped
// past their lease or killed, and leases are revoked.
//
// TestRestarts_LoseNothingAndLeaveNothing calls a Guard in every way there is, from
// many goroutines, while etcd and Postgres are killed, stopped, paused and
// restarted.
//
// TestResources_UsedOnceLeaveNothingAndDisturbNoOthers uses many resources once each, and
// acquires many under deadlines that are too short.
//
// TestRetention_BoundsTablesAndIndexes writes years of history and prunes it, and looks at the
// sizes of tables and indexes.
//
// All run for seconds in "go test ./...", and for longer by flags after -args, see "make
// soak": -ops, -duration, -goroutines, -resources, -entries, -seed. The seed determines operations and
// faults, not how the machine interleaves them. A run without one of the kinds of faults is
// inconclusive, and fails.
package soak
