package fence

import "strconv"

// Token is a fencing token: a number that strictly increases with every grant
// of one resource, within one epoch (F1). In etcd it is the create revision of
// the winner's lock key. The term is Kleppmann's ("How to do distributed
// locking", 2016); the idea is Chubby's sequencer (Burrows, OSDI 2006).
type Token int64

// MaxToken is the highest token that is accepted anywhere. It leaves room for arithmetic,
// and keeps one absurd number from locking out a resource for good.
const MaxToken Token = 1<<62 - 1

// MaxEpoch is the highest epoch that is accepted anywhere. Operators raise the epoch by one
// after the lock service was restored.
const MaxEpoch int64 = 1<<31 - 1

// String returns the token as a decimal number.
func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }
