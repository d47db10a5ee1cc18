// Package guardtest holds the contract that every guard.Store passes, and a lock
// service in memory for tests of code that uses package guard. It imports the
// standard library, fence and guard only.
//
// [TestStore] runs the contract, as subtests that are named for a behaviour and
// the invariant of package guard (G1 to G6) that rests on it. A store brings a
// [Harness]. The contract was itself tested: for each of its safety parts there
// is a store, broken by hand, that the part flags.
package guardtest
