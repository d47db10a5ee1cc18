// Package epoch compares the epoch of an etcd with that of the databases that are written to under
// its locks, and raises the databases'. It is for this module's own use: "fencectl epoch" and
// "fencectl doctor".
//
// # Model
//
// A State is what etcd and the databases say. Compare says why claims in a database are rejected,
// if they are; State.Next, which epoch to raise both to. The databases are raised first
// (Raise.Apply) and etcd afterwards (inspect.Inspector.PutEpoch): an epoch that was in etcd alone
// would be lost by etcd's next restore, and issued a second time. Read the databases before etcd:
// then no token in a database is newer than etcd's revision.
//
// # Invariants
//
//   - A database's epoch is never lowered, and each raise is recorded in the table epoch_raise,
//     which can only be appended to.
//   - etcd's key is put only if it hasn't changed since it was read.
//
// # What is not promised
//
// Nothing here is atomic across servers. Between the first raise and the put of etcd's key claims
// in the raised databases are rejected (storage.ReasonEpochBehind).
package epoch
