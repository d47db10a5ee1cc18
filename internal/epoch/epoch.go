// Package epoch compares the epoch of an etcd with that of the databases that are written to under
// its locks, and raises the databases'. It is for "fencectl epoch" and "fencectl doctor".
//
// The databases are raised first (Raise.Apply) and etcd afterwards (inspect.Inspector.PutEpoch): an epoch that was in
// etcd alone would be lost by etcd's next restore, and issued a second time. Read the databases before etcd: then no
// token in a database is newer than etcd's revision.
//
// A database's epoch is never lowered, and each raise is recorded in the table epoch_raise, which can only be appended
// to. Nothing is atomic across servers: between the first raise and the put of etcd's key claims
// in the raised databases are rejected (storage.ReasonEpochBehind).
package epoch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/record"
)

// Database is what a schema knows of its lock service's epoch.
type Database struct {
	Number  int64       // the highest epoch that has claimed or was raised to, also if the setting says less
	MaxJump int64       // how far above Number the epoch of a claim may be
	Highest fence.Grant // the highest grant that has a fence; the zero Grant if there is none
	Raised  Raise       // the last one; the zero Raise if there was none
}

// ReadIn returns the epoch of a schema, in a transaction of record.ReadTx. It reads all fences. The reader role is
// enough. The error is pgx.ErrNoRows if the table of settings is empty.
func ReadIn(ctx context.Context, tx pgx.Tx, schema string) (d Database, err error) {
	// The table of settings may have been restored alone.
	err = tx.QueryRow(ctx, fmt.Sprintf(`select greatest(s.epoch, f.epoch, r.epoch), s.max_epoch_jump,
		       coalesce(f.name::text, ''), coalesce(f.epoch, 0), coalesce(f.token, 0), coalesce(f.holder::text, ''),
		       coalesce(r.epoch, 0), coalesce(r.token, 0), coalesce(r.reason, ''), coalesce(r.operator, ''),
		       coalesce(r.role, ''), coalesce(r.at, 'epoch')
		  from %[1]s.setting s
		  left join lateral (select * from %[1]s.resource order by epoch desc, token desc limit 1) f on true
		  left join lateral (select * from %[1]s.epoch_raise order by epoch desc limit 1) r on true`, pgx.Identifier{schema}.Sanitize())).
		Scan(&d.Number, &d.MaxJump, &d.Highest.Resource, &d.Highest.Epoch, &d.Highest.Token, &d.Highest.Holder,
			&d.Raised.Epoch, &d.Raised.Token, &d.Raised.Reason, &d.Raised.Operator, &d.Raised.Role, &d.Raised.At)
	if err != nil {
		return Database{}, fmt.Errorf("reading the epoch: %w", err)
	}
	if d.Raised.Epoch == 0 {
		d.Raised = Raise{}
	}
	return d, nil
}

// MaxReason bounds Raise.Reason and Raise.Operator, in bytes.
const MaxReason = 1000

// Raise is one raise of a schema's epoch. The table of raises is append-only, for the schema's
// owner too.
type Raise struct {
	Epoch int64
	// Token is the mark of the new epoch: how far the lock service has got. Tokens far above the
	// mark are rejected (storage.ReasonTokenJump). 0 accepts any token as the first.
	Token    fence.Token
	Reason   string    // 1 to MaxReason bytes
	Operator string    // who raised it, 1 to MaxReason bytes
	Role     string    // the role of the session; Apply ignores it
	At       time.Time // by the database's clock; Apply ignores it
}

var errDryRun = errors.New("dry run")

// Apply raises the epoch of a schema and records it in the table epoch_raise. It reports false, and
// changes nothing, if the epoch is that high already: an epoch is never lowered. From then on claims
// of lower epochs are rejected (storage.ReasonEpochBehind); a grant that has a fence keeps it until
// the next claim. The pool's role must own the schema. With dryRun everything is rolled back: the
// result is what it would be without. After an error the epoch may have been raised.
func (r Raise) Apply(ctx context.Context, pool *pgxpool.Pool, schema string, dryRun bool) (raised bool, err error) {
	schema = pgx.Identifier{schema}.Sanitize()
	err = record.WriteTx(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select "+schema+".raise_durability()"); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, "update "+schema+".setting set epoch = $1, token = $2 where one and epoch < $1", r.Epoch, int64(r.Token))
		if raised = err == nil && tag.RowsAffected() > 0; !raised {
			return err
		}
		_, err = tx.Exec(ctx, "insert into "+schema+".epoch_raise (epoch, token, reason, operator) values ($1, $2, $3, $4)", r.Epoch, int64(r.Token), r.Reason, r.Operator)
		if err == nil && dryRun {
			return errDryRun
		}
		return err
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return false, fmt.Errorf("raising the epoch: %w", err)
	}
	return raised, nil
}

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
	var inEtcd, inDatabases, accepted, reach int64
	unreadable := false
	for _, key := range s.Keys {
		inEtcd, unreadable = max(inEtcd, key.Number), unreadable || key.Number == 0
	}
	for _, d := range s.Databases {
		inDatabases, accepted = max(inDatabases, d.Number), max(accepted, d.Number+d.MaxJump)
		reach = max(reach, 2*d.MaxJump)
	}
	kept := s.kept(inDatabases, reach)
	next, outOfReach := max(inEtcd, inDatabases)+1, inEtcd > kept
	switch {
	case trust == Databases && outOfReach:
		next = kept + 1
	case trust == Databases && unreadable:
	case trust == Databases && inEtcd >= inDatabases:
		return 0, fmt.Errorf("etcd's epoch %d can't be lowered: a database has accepted it, or might accept a grant of it that is still on its way. "+
			"Run it with --trust etcd to raise all to %d", inEtcd, next)
	case unreadable:
		return 0, fmt.Errorf("a key of etcd holds no epoch: with --trust databases it becomes %d", next)
	case trust == "" && outOfReach:
		return 0, fmt.Errorf("etcd's epoch is %d, and no database accepts more than %d. If you left out a database, add it. "+
			"If etcd's was mistyped, --trust databases makes it %d; if it is right, --trust etcd raises the databases to %d, for good", inEtcd, accepted, kept+1, next)
	case trust == "" && inEtcd > accepted:
		return 0, fmt.Errorf("etcd's epoch is %d, and no database accepts more than %d. If you left out a database, add it. "+
			"Otherwise --trust etcd raises the databases to %d; etcd's is too near to be lowered", inEtcd, accepted, next)
	}
	if next > fence.MaxEpoch {
		return 0, fmt.Errorf("the epoch is %d, the highest there is", next-1)
	}
	return next, nil
}

// kept is the highest epoch that is not lowered: the databases', or one of etcd's within reach of
// it. A database accepts grants of an epoch within reach once its own has been raised by max_epoch_jump.
func (s State) kept(inDatabases, reach int64) int64 {
	kept := inDatabases
	byNumber := func(a, b inspect.Epoch) int { return cmp.Compare(a.Number, b.Number) }
	for _, key := range slices.SortedFunc(slices.Values(s.Keys), byNumber) {
		if key.Number <= kept+reach {
			kept = max(kept, key.Number)
		}
	}
	return kept
}
