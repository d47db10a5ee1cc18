// Package epoch compares the epoch of an etcd with that of the databases that are written to under
// its locks, and raises the databases'. It is for this module's own use: "fencectl epoch" and
// "fencectl doctor".
//
// # Model
//
// A State is what etcd and the databases say. The databases are raised first (Raise.Apply) and etcd
// afterwards (inspect.Inspector.PutEpoch): an epoch that was in etcd alone would be lost by etcd's
// next restore, and issued a second time. Read the databases before etcd: then no token in a
// database is newer than etcd's revision.
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

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
)

// State is what etcd and the databases that are written to under its locks say.
type State struct {
	Keys      []inspect.Epoch // one for each prefix; Number 0: the key holds no epoch
	Databases []Database
}

// Drift is why claims are rejected, with the reasons of the rejections; "" if they are not.
type Drift string

// The drifts.
const (
	NoEpoch   Drift = "the key holds no epoch: etcd grants nothing"
	Behind    Drift = "etcd is behind: claims are rejected (epoch behind)"
	TooFar    Drift = "etcd is too far ahead: claims are rejected (token jump)"
	TokensLow Drift = "a fence's token is above etcd's revision: its claims are rejected (stale token, tokens went back)"
	Absurd    Drift = "a fence's token is absurdly far above etcd's revision: its claims are rejected (stale token, tokens went back)"
)

// FarAhead is how far above etcd's revision a token is that no restore explains. It is the database's own
// step for its mark of tokens.
const FarAhead = 1 << 30

// Compare compares a key of etcd with a database that was read before it.
func Compare(key inspect.Epoch, d Database) Drift {
	switch {
	case key.Number == 0:
		return NoEpoch
	case key.Number < d.Number:
		return Behind
	case key.Number > d.Number+d.MaxJump:
		return TooFar
	case key.Number == d.Highest.Epoch && int64(d.Highest.Token)-key.Revision > FarAhead:
		return Absurd
	case key.Number == d.Highest.Epoch && int64(d.Highest.Token) > key.Revision:
		return TokensLow
	}
	return ""
}

// Drift compares a database with each key that holds an epoch, and returns the first drift.
func (s State) Drift(d Database) Drift {
	for _, key := range s.Keys {
		if drift := Compare(key, d); drift != "" && drift != NoEpoch {
			return drift
		}
	}
	return ""
}

// Revision is etcd's.
func (s State) Revision() (revision int64) {
	for _, key := range s.Keys {
		revision = max(revision, key.Revision)
	}
	return revision
}

// Side says whose epoch is right where etcd and the databases disagree.
type Side string

// The sides. The zero Side is neither.
const (
	Etcd      Side = "etcd"
	Databases Side = "databases"
)

// Next returns the epoch to raise all to: one more than the highest there is or, with Databases
// and an epoch of etcd's that is out of reach, than the highest that isn't. Its error says why
// there is none, for users of "fencectl epoch bump", whose flag --trust is the Side.
func (s State) Next(trust Side) (int64, error) {
	inEtcd, inDatabases := s.highest()
	kept := s.kept()
	next, outOfReach := max(inEtcd, inDatabases)+1, inEtcd > kept
	switch {
	case trust == Databases && outOfReach:
		next = kept + 1
	case trust == Databases && s.unreadable():
	case trust == Databases && inEtcd >= inDatabases:
		return 0, fmt.Errorf("etcd's epoch %d can't be lowered: a database has accepted it, or might accept a grant of it that is still on its way. "+
			"Run it with --trust etcd to raise all to %d", inEtcd, next)
	case s.unreadable():
		return 0, fmt.Errorf("a key of etcd holds no epoch: with --trust databases it becomes %d", next)
	case trust == "" && outOfReach:
		return 0, fmt.Errorf("etcd's epoch is %d, and no database accepts more than %d. If you left out a database, add it. "+
			"If etcd's was mistyped, --trust databases makes it %d; if it is right, --trust etcd raises the databases to %d, for good", inEtcd, s.accepted(), kept+1, next)
	case trust == "" && inEtcd > s.accepted():
		return 0, fmt.Errorf("etcd's epoch is %d, and no database accepts more than %d. If you left out a database, add it. "+
			"Otherwise --trust etcd raises the databases to %d; etcd's is too near to be lowered", inEtcd, s.accepted(), next)
	}
	if next > fence.MaxEpoch {
		return 0, fmt.Errorf("the epoch is %d, the highest there is", next-1)
	}
	return next, nil
}

func (s State) highest() (inEtcd, inDatabases int64) {
	for _, key := range s.Keys {
		inEtcd = max(inEtcd, key.Number)
	}
	for _, d := range s.Databases {
		inDatabases = max(inDatabases, d.Number)
	}
	return inEtcd, inDatabases
}

// accepted is the highest epoch that a claim in one of the databases may have.
func (s State) accepted() (highest int64) {
	for _, d := range s.Databases {
		highest = max(highest, d.Number+d.MaxJump)
	}
	return highest
}

// kept is the highest epoch that is not lowered: the databases', or one of etcd's within reach of
// it. A database accepts grants of an epoch within reach once its own has been raised by max_epoch_jump.
func (s State) kept() int64 {
	_, kept := s.highest()
	reach := int64(0)
	for _, d := range s.Databases {
		reach = max(reach, 2*d.MaxJump)
	}
	byNumber := func(a, b inspect.Epoch) int { return cmp.Compare(a.Number, b.Number) }
	for _, key := range slices.SortedFunc(slices.Values(s.Keys), byNumber) {
		if key.Number <= kept+reach {
			kept = max(kept, key.Number)
		}
	}
	return kept
}

func (s State) unreadable() bool {
	for _, key := range s.Keys {
		if key.Number == 0 {
			return true
		}
	}
	return false
}
