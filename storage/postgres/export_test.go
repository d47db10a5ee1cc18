package postgres

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// The messages of a Store, and its reading of the answers, for tests that send them on
// connections of their own.

var (
	ReadKept   = readKept
	ReadClaims = readClaims
)

// ReadClaim reads the answer to ClaimMessage; a rejection is an error.
func ReadClaim(grant fence.Grant, a *wire.Answer) (storage.Claim, error) {
	claims, rejections, err := readClaims([]fence.Grant{grant}, a)
	switch {
	case err != nil:
		return storage.Claim{}, err
	case len(rejections) > 0:
		return storage.Claim{}, rejections[0]
	}
	return claims[0], nil
}

// ClaimMessage claims, and perhaps evicts.
func (s *Store) ClaimMessage(grant fence.Grant, evict bool) string {
	after := ""
	if evict {
		after = s.evictSQL([]fence.Grant{grant}, false)
	}
	return s.transactSQL(s.claimSQL([]storage.Claim{{Grant: grant}}), after)
}

// ClaimsMessage claims several grants, in the order of their names, and evicts.
func (s *Store) ClaimsMessage(grants []fence.Grant) string {
	seen := make([]storage.Claim, len(grants))
	for i, g := range grants {
		seen[i].Grant = g
	}
	return s.transactSQL(s.claimSQL(seen), s.evictSQL(grants, false))
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

// BeginMessage begins a transaction for CommitMessage, which doesn't know the server's id of it.
func (s *Store) BeginMessage(claims []storage.Claim) string {
	return (&txn{store: s, claims: claims}).beginSQL(s.sql.aloneArgs)
}

// TakeForUnlisted sets how long a transaction may take that no eviction can have listed.
func (s *Store) TakeForUnlisted(limit time.Duration) { s.unlisted = limit }

// TakeForNoneDeferrable sets that nothing in the database can be deferred until COMMIT, as a look has
// found just now.
func (s *Store) TakeForNoneDeferrable() {
	s.deferrable.none, s.deferrable.lastLook = true, time.Now()
}

// LookForDeferrable makes the next transaction look what can be deferred.
func (s *Store) LookForDeferrable() { s.deferrable.lastLook = time.Time{} }

// NoteEarlierLook notes that the look before the last one has found nothing.
func (s *Store) NoteEarlierLook() {
	s.deferrable.note(s.deferrable.looks-1, &wire.Answer{Rows: [][]string{{"deferrable", "f"}}})
}

// Head returns BEGIN, and the begin check as a statement with parameters.
func (s *Store) Head(claims []storage.Claim) (begin, check string, params []any) {
	t := &txn{store: s, claims: claims}
	check, texts := t.beginCheck(s.sql.aloneArgs)
	for _, text := range texts {
		params = append(params, string(text))
	}
	return t.begin(), check, params
}

// ReadMessages begin a read-only transaction, and end it.
func (s *Store) ReadMessages(claims []storage.Claim) (begin, end string) {
	t := &txn{store: s, claims: claims, readOnly: true}
	return strings.Replace(s.BeginMessage(claims), s.sql.begin, t.begin(), 1), t.readSQL()
}

// CommitMessage seals, keeps result under key if there is one, and commits.
func (s *Store) CommitMessage(id storage.TxID, claims []storage.Claim, key *storage.OnceKey, result []byte) (string, error) {
	moves := make([]storage.Move, len(claims))
	for i := range moves {
		moves[i].Ops = []storage.OpRecord{{ID: fmt.Sprint(id)}}
		if key != nil {
			moves[i].Kept = []storage.Kept{{Key: *key, Result: result}}
		}
	}
	return (&txn{store: s, claims: claims, id: id}).sealSQL(moves)
}

// LookMessage ends the session if a transaction under claims may have been listed by an eviction.
func (s *Store) LookMessage(claims []storage.Claim) string {
	return s.sql.after + (&txn{store: s, claims: claims}).endIfSupersededSQL()
}

// MovedBy returns the claims at the positions that the transaction of that name moves the
// fences to.
func MovedBy(id storage.TxID, claims []storage.Claim) []storage.Claim {
	return (&txn{claims: claims, id: id}).moved()
}

// Times are the times of a Config that aren't settings.
type Times = times

// Times returns them, for tests to change.
func (c *Config) Times() *Times { return &c.times }

// With returns the Config with them.
func (c Config) With(t Times) *Config { c.times = t; return &c }

// InTurns is how a prune rests.
var InTurns = withPauses
