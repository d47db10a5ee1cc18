// Package guardtest holds the contract that every storage.Store passes, and for tests
// of code that uses package guard a lock service in memory, and checks that the code
// is fenced and may be called again.
//
// # Testing your own code
//
// Code that works on a *guard.Guard needs no etcd in its tests. [NewLocker] is the
// lock service. With package storage/memory there is no database either:
//
//	g, err := guard.New(guardtest.NewLocker(), memory.NewStore(), nil)
//
// Code that is tested with a mock of its transaction takes [StoreOf]. Code that works with pgx takes a
// migrated test database, and postgres.NewStore. That may hold what earlier runs left: tokens rise with the
// time. It must never be used with a real lock service, before or afterwards: their tokens are far apart.
//
// For several processes take several Lockers of one [LockService], a Guard on each;
// [LockService.Lose] takes a resource from its holder in the middle of its work. Two
// LockServices on one database at the same time are no lock: the fence rejects the
// grants of the one with lower tokens. [Locker.Election] is for code that takes a fence.Election.
//
// [RequireFenced] shows of a function of yours that it writes through the fence, and
// [RequireIdempotent] that a caller that didn't learn the outcome may call it again.
//
// # The contract
//
// [TestStore] runs the contract, as subtests that are named for a behaviour, on a store's
// [Harness]. For each part there is a store, broken by hand, that the part flags.
package guardtest
