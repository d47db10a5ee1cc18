package postgres

import (
	"strings"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// The messages of a Store, and its reading of the answers, for tests that send them on
// connections of their own.

var (
	ReadClaim = readClaim
	ReadKept  = readKept
)

// ClaimMessage claims, and perhaps evicts.
func (s *Store) ClaimMessage(grant fence.Grant, evict bool) string {
	behind := ""
	if evict {
		behind = s.evictSQL(grant)
	}
	return s.transactSQL(s.claimSQL(grant), behind)
}

// OpenClaimMessage is the part of ClaimMessage that comes before its COMMIT.
func (s *Store) OpenClaimMessage(grant fence.Grant) string {
	return strings.TrimSuffix(s.ClaimMessage(grant, false), "; commit; ")
}

func (s *Store) RecallMessage(key storage.OnceKey, claims []storage.Claim) string {
	return s.transactSQL(s.recallSQL(key, claims), "")
}

func (s *Store) ResolveMessage(claim storage.Claim, id storage.TxID) string {
	return s.transactSQL(s.resolveSQL(claim, id), "")
}

func (s *Store) BeginMessage(id storage.TxID, claims []storage.Claim) string {
	return (&txn{store: s, claims: claims, id: id}).beginSQL()
}

// CommitMessage seals, keeps result under key if there is one, and commits.
func (s *Store) CommitMessage(id storage.TxID, claims []storage.Claim, key *storage.OnceKey, result []byte) (string, error) {
	moves := make([]storage.Move, len(claims))
	for i := range moves {
		if key != nil {
			moves[i].Kept = []storage.Kept{{Key: *key, Result: result}}
		}
	}
	return (&txn{store: s, claims: claims, id: id}).sealSQL(moves)
}

// MovedBy returns the claims at the positions that the transaction of that name moves the
// fences to.
func MovedBy(id storage.TxID, claims []storage.Claim) []storage.Claim {
	return (&txn{claims: claims, id: id}).moved()
}
