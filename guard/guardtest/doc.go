// Package guardtest has a lock service in memory and checks for tests of code that uses package guard, and the
// contract of a storage.Store.
//
// # Testing your own code
//
// Code that works on a *guard.Guard needs no etcd in its tests: take [NewLocker]. With package storage/memory there
// is no database either:
//
//	g, err := guard.New(guardtest.NewLocker(), memory.NewStore(), nil)
//
// [StoreOf] is for code that is tested with a mock of its transaction. Code that works with pgx takes
// postgres.NewStore on a migrated test database, which may hold what earlier runs left. Never use that database
// with a real lock service: the tokens are far apart.
//
// For several processes take several Lockers of one [LockService], and a Guard on each; [LockService.Lose] takes a
// resource from its holder. Don't use two LockServices on one database at a time: the fence rejects the lower
// tokens.
//
// [RequireFenced] shows that a function of yours writes through the fence, and [RequireIdempotent] that a caller
// that didn't learn the outcome may call it again. [Simulate] runs it in several processes, in orders that seeds decide,
// and finds what breaks the data there.
//
// # The contract
//
// [TestStore] runs the contract on a store's [Harness]. For each part there is a broken store that it flags.
package guardtest
