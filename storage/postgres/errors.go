package postgres

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/internal/wire"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/usertx"
)

// ErrNotReady means that an operator has to act first. See NotReadyError.
var ErrNotReady = errors.New("postgres: database is not ready")

// NotReadyError says what an operator has to fix, and how. It is ErrNotReady.
type NotReadyError struct{ Reason NotReadyReason }

func (e *NotReadyError) Error() string { return "postgres: " + string(e.Reason) }

// Is reports whether target is ErrNotReady.
func (e *NotReadyError) Is(target error) bool { return target == ErrNotReady }

// NotReadyReason says what has to be fixed.
type NotReadyReason string

const (
	// NotMigrated: the schema is missing or older than this code needs.
	NotMigrated NotReadyReason = "schema is not up to date"
	// Unsupported: the server's version or a setting is not supported.
	Unsupported NotReadyReason = "server is not supported"
	// MissingRights: the role lacks rights.
	MissingRights NotReadyReason = "rights are missing"
	// FenceBehind: a fence is behind its history, as after a partial restore. The message has the statement that
	// the schema's owner runs.
	FenceBehind NotReadyReason = "fence is behind its history"
	// ClockJumped: since the last Store.Prune the server's clock went back, or forward by more than a quarter of
	// the retention, so Once keys are kept for longer. If each call returns it, calls are too far apart.
	ClockJumped NotReadyReason = "the server's clock jumped"
	// HistoryGap: entries that a prune would have deleted are missing. The resources in the message keep all
	// entries, as evidence.
	HistoryGap NotReadyReason = "entries are missing from the history"
	// OtherShard: the database is another shard than Config.Shard. See Store.SetShard.
	OtherShard NotReadyReason = "database is another shard"
)

// HiddenRowsError means that row-level security would hide rows of Fencekit's tables. The text says what to do.
type HiddenRowsError = record.HiddenRowsError

func notReady(reason NotReadyReason) error { return &NotReadyError{Reason: reason} }

// TransientError wraps an error after which the same call may succeed: a serialization failure, a deadlock, a
// lock timeout, a server that ends the session, stops, starts or is a standby, a connection that was lost before
// COMMIT, a prepared plan that no longer fits.
// guard.Retryable runs it again.
type TransientError struct{ Err error }

func (e *TransientError) Error() string { return e.Err.Error() }

func (e *TransientError) Unwrap() error { return e.Err }

// Retryable returns true.
func (e *TransientError) Retryable() bool { return true }

// ErrPruned: the entry that would tell a transaction's outcome was pruned.
var ErrPruned = errors.New("postgres: the history no longer tells the outcome")

func asked(what string, err error) error {
	err = fmt.Errorf("postgres: can't %s: %w", what, askedError(namedError(err)))
	if isAway(err) {
		return &TransientError{err}
	}
	return err
}

func isMissing(err error) bool {
	state := sqlstate.Of(err)
	return state == sqlstate.NoTable || state == sqlstate.NoSchema
}

var rejectionReasons = map[string]storage.Reason{
	sqlstate.Stale:       storage.ReasonStale,
	sqlstate.Overtaken:   storage.ReasonOvertaken, // mutant: rejections-of-siblings-are-stale
	sqlstate.WentBack:    storage.ReasonWentBack,
	sqlstate.EpochBehind: storage.ReasonEpochBehind,
	sqlstate.Collision:   storage.ReasonCollision,
	sqlstate.TokenJump:   storage.ReasonTokenJump,
	sqlstate.FailedOver:  storage.ReasonFailedOver,
}

// explain turns err into what it means for claims. It records and returns a rejection if the server made one; or if
// the transaction has ended, or met a serialization failure, which is all that the stricter levels report, and a
// claim has lost its fence. The caller must not hold a connection: a pool of one would deadlock.
func (s *Store) explain(ctx context.Context, err error, ended bool, stage storage.Stage, claims ...storage.Claim) error {
	var pgErr *pgconn.PgError
	state := ""
	if errors.As(err, &pgErr) && wire.FromServer(pgErr) {
		state = pgErr.Code
	}
	ours := stage != storage.StageRun // an error while the function runs is the function's own; mutant: rejections-are-the-operations-own
	switch {
	case ours && state == sqlstate.TxEnded:
		return fmt.Errorf("%w before its COMMIT, by SQL in the function: %s: %w", storage.ErrTxEnded, usertx.WhatStays, err)
	case ours && rejectionReasons[state] != "" && claims[0].Looked:
		return storage.ErrMoved
	case ours && rejectionReasons[state] != "":
		rejected := rejectionFromDetail(state, []byte(pgErr.Detail), claims)
		rejected.Stage = stage
		return s.reject(ctx, rejected)
	case ended || state == sqlstate.Serialization:
		for _, claim := range claims {
			if claim.Looked {
				continue // its grant isn't the caller's
			}
			rejected := s.currentRejection(ctx, claim)
			if rejected != nil && (!claim.Own || rejected.Reason == storage.ReasonStale) { // else the fence is where it was before
				rejected.Stage, rejected.Err = stage, err
				if pgErr != nil {
					rejected.Err = s.nameCode(err, pgErr)
				}
				return s.reject(ctx, rejected)
			}
		}
	}
	if pgErr == nil {
		return err
	}
	switch {
	case stage == storage.StageSeal && state == sqlstate.ReadOnly:
		err = fmt.Errorf("%w (either the function has made its transaction read only, where the seal can't write, or a deferred trigger has deferred others again, which write after the seal)", err)
	case stage == storage.StageSeal && state == sqlstate.NoRights:
		err = fmt.Errorf("%w at the seal: %w (the function must keep the role that it began with: no SET ROLE, RESET ROLE or SET SESSION AUTHORIZATION)", notReady(MissingRights), err)
	}
	return s.named(err)
}

func (s *Store) named(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err
	}
	err = s.nameCode(namedError(err), pgErr)
	if transient(pgErr) {
		return &TransientError{err}
	}
	return err
}

func (s *Store) nameCode(err error, pgErr *pgconn.PgError) error {
	switch {
	case pgErr.Code == sqlstate.LockTimeout:
		return fmt.Errorf("%w (a wait for a lock lasts at most %v, two fifths of postgres.Config.StatementTimeout)", err, s.cfg.times.Lock)
	case pgErr.Code == sqlstate.Idle:
		return fmt.Errorf("%w (a pause within a transaction lasts no longer than postgres.Config.StatementTimeout, %v, and half of that in a call that claims by itself; a long decision belongs between two transactions of a guard.Hold)", err, s.cfg.times.Idle)
	case pgErr.Code == sqlstate.InTransaction:
		return fmt.Errorf("%w (the transaction has begun: its isolation level is postgres.Config.Isolation, and what can't run in a transaction can't be guarded)", err)
	case pgErr.Code == sqlstate.Canceled && strings.Contains(pgErr.Message, "statement timeout"):
		return fmt.Errorf("%w (postgres.Config.StatementTimeout is %v)", err, s.cfg.StatementTimeout)
	case pgErr.Code == sqlstate.Unique && pgErr.SchemaName == s.cfg.Schema && pgErr.ConstraintName == "history_pkey":
		return fmt.Errorf("%w: its table was restored without the history, or changed by hand; the owner of the schema runs: select %s.repair(): %w",
			notReady(FenceBehind), s.sql.schema, err)
	case pgErr.Code == sqlstate.OtherShard:
		value := "null"
		if s.cfg.Shard.Count > 0 {
			value = "'" + s.cfg.Shard.String() + "'"
		}
		return fmt.Errorf("%w: %w; connect to that shard's database, and give all processes the same list of databases; only if this database holds exactly that shard's data, run as the schema's owner: update %s.setting set shard = %s",
			notReady(OtherShard), err, s.sql.schema, value)
	}
	return err
}

func transient(pgErr *pgconn.PgError) bool {
	switch pgErr.Code {
	case sqlstate.Serialization, sqlstate.Deadlock, sqlstate.LockTimeout:
		return true
	case sqlstate.NoStatement, sqlstate.StatementExists:
		return true // something else used the connection; pgx prepares anew after an error
	}
	return replanned(pgErr) || isAway(pgErr)
}

// replanned reports whether a table has changed, and with it the result types of a prepared statement.
func replanned(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == sqlstate.Unsupported && pgErr.Routine == "RevalidateCachedQuery"
}

func detailFromHex(text string) []byte {
	detail, _ := hex.DecodeString(text)
	return detail
}

func rejectionFromDetail(state string, detail []byte, claims []storage.Claim) *storage.RejectedError {
	var d struct {
		Resource string
		Number   int64 // of the fence, if that was retired
		Epoch    int64
		Token    fence.Token
		Holder   string
		Since    time.Time
		Age      float64
		Hint     string
	}
	_ = json.Unmarshal(detail, &d)
	grant := claims[0].Grant
	for _, c := range claims {
		if c.Grant.Resource == d.Resource || d.Resource == "" && c.Resource == d.Number {
			grant = c.Grant
		}
	}
	var advice error
	if d.Hint != "" {
		advice = errors.New(d.Hint)
	}
	return &storage.RejectedError{
		Reason:  rejectionReasons[state],
		Grant:   grant,
		Current: fence.Grant{Resource: grant.Resource, Epoch: d.Epoch, Token: d.Token, Holder: d.Holder},
		Since:   d.Since,
		Err:     advice,
		Age:     time.Duration(d.Age * float64(time.Second)),
	}
}

func (s *Store) reject(ctx context.Context, r *storage.RejectedError) error {
	ctx, cancel := s.cleanup(ctx)
	defer cancel()
	_, r.RecordErr = s.transact(ctx, fmt.Sprintf(s.sql.record, // mutant: rejections-are-not-recorded
		text(r.Grant.Resource), text(string(r.Reason)), text(string(r.Stage)), r.Grant.Epoch, r.Grant.Token, text(r.Grant.Holder),
		r.Current.Epoch, r.Current.Token, text(r.Current.Holder), timestamp(r.Since)), "")
	if r.RecordErr != nil {
		s.cfg.Logger.Error("postgres: a rejection could not be recorded", "resource", r.Grant.Resource, "token", r.Grant.Token, "error", r.RecordErr)
	}
	return r
}

func (s *Store) currentRejection(ctx context.Context, claim storage.Claim) *storage.RejectedError {
	ctx, cancel := s.cleanup(ctx)
	defer cancel()
	answer, err := s.transact(ctx, fmt.Sprintf(s.sql.fence, text(claim.Grant.Resource)), "")
	if err != nil {
		return nil
	}
	rejected := &storage.RejectedError{Grant: claim.Grant, Current: fence.Grant{Resource: claim.Grant.Resource}}
	if len(answer.Rows) == 0 {
		rejected.Reason = storage.ReasonWentBack
		return rejected
	}
	var holder []byte
	var at storage.Position
	var sameTimeline bool
	var sinceMicros, ageMicros int64
	_, err = fmt.Sscanf(answer.First(), "%d %d %x %d %d %t %d %d",
		&rejected.Current.Epoch, &rejected.Current.Token, &holder, &at.Seq, &at.Tx, &sameTimeline, &sinceMicros, &ageMicros)
	if err != nil {
		return nil
	}
	rejected.Current.Holder = string(holder)
	rejected.Since, rejected.Age = time.UnixMicro(sinceMicros), time.Duration(ageMicros)*time.Microsecond
	rejected.Reason = claim.Check(rejected.Current, at)
	if rejected.Reason == "" && !sameTimeline {
		rejected.Reason = storage.ReasonFailedOver
	}
	if rejected.Reason == "" {
		return nil
	}
	return rejected
}
