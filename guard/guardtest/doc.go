// Package guardtest holds the contract that every storage.Store passes, and for tests
// of code that uses package guard a lock service in memory, and checks that the code
// is fenced and may be called again. It imports the standard library, fence, guard, storage and
// storage/memory only.
//
// # Testing your own code
//
// Code that works on a *guard.Guard needs no etcd in its tests. [NewLocker] is the
// lock service. With package storage/memory there is no database either:
//
//	g, err := guard.New(guardtest.NewLocker(), memory.NewStore(), nil)
//
// Code that is tested with a mock of its transaction takes [StoreOf]. Code that works with pgx takes a
// test database that was migrated, and postgres.NewStore. That may be the same from run to run, and hold what
// earlier runs left: tokens rise with the time. It must never have been used with a real lock service,
// nor be used with one afterwards: their tokens are far apart.
//
// For several processes take several Lockers of one
// [LockService], a Guard on each; [LockService.Lose] takes a resource from its
// holder in the middle of its work. Two LockServices on one database at the same
// time are no lock: the fence rejects the grants of the one with lower tokens.
// Code that takes a fence.Election can be given that of [Locker.Election].
//
// [RequireFenced] shows of a function of yours that it writes through the fence: it
// runs it with grants that were superseded, at each moment that matters, and once
// with one that was not. [RequireIdempotent] shows that a caller that didn't learn the
// outcome may call it again: it loses the answer to its COMMIT, calls it again, and
// compares the state.
//
// # The contract
//
// [TestStore] runs the contract, as subtests that are named for a behaviour. A store brings a
// [Harness]. The contract was itself tested: for each of its parts there
// is a store, broken by hand, that the part flags.
package guardtest
