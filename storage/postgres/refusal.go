package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// SQLSTATEs. The ZF ones are raised by this package's own SQL.
const (
	stateStale       = "ZF001"
	stateOvertaken   = "ZF002"
	stateTxEnded     = "ZF003"
	stateWentBack    = "ZF004"
	stateEpochBehind = "ZF005"
	stateCollision   = "ZF006"
	stateTokenJump   = "ZF010"
	stateFailedOver  = "ZF011"

	stateNoCreateRole = "ZF020"

	stateSerialization = "40001"
	stateDeadlock      = "40P01"
	stateLockTimeout   = "55P03"
	stateAborted       = "25P02" // a statement in a transaction that has failed
	stateTerminated    = "57P01"
	stateIdle          = "25P03"
	stateTransaction   = "25P04" // transaction_timeout, from PostgreSQL 17 on
	stateCanceled      = "57014"
	stateNoRights      = "42501"
	stateBadRole       = "0LP01"
	stateReadOnly      = "25006"
	stateUnsupported   = "0A000"
	stateUnique        = "23505"

	stateNoStatement     = "26000"
	stateStatementExists = "42P05"
)

var refusalReasons = map[string]storage.Reason{
	stateStale:       storage.ReasonStale,
	stateOvertaken:   storage.ReasonOvertaken,
	stateWentBack:    storage.ReasonWentBack,
	stateEpochBehind: storage.ReasonEpochBehind,
	stateCollision:   storage.ReasonCollision,
	stateTokenJump:   storage.ReasonTokenJump,
	stateFailedOver:  storage.ReasonFailedOver,
}

func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// TransientError wraps an error after which the same operation, run again, may
// well succeed: a serialization failure, a deadlock, a lock that was not free in
// time, a terminated connection, a prepared plan that no longer fits. guard.Retryable asks for that.
type TransientError struct{ Err error }

func (e *TransientError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *TransientError) Unwrap() error { return e.Err }

// Retryable returns true.
func (e *TransientError) Retryable() bool { return true }

// explain returns err as what it means for claims: a recorded refusal if the
// server refused one of them, or if it ended the transaction (ended, or by a
// serialization failure, which is all that the stricter levels say) and one of
// them no longer has its fence; else err, marked as transient where it is. No
// connection may be held by the caller: with a pool of one that would be a
// deadlock.
func (s *Store) explain(ctx context.Context, err error, ended bool, stage storage.Stage, claims ...storage.Claim) error {
	var pgErr *pgconn.PgError
	state := ""
	if errors.As(err, &pgErr) && fromServer(pgErr) {
		state = pgErr.Code
	}
	ours := stage != storage.StageRun // what an operation meets there is its own
	switch {
	case ours && state == stateTxEnded:
		return fmt.Errorf("%w before its seal, or lost its mark (RESET ALL), by SQL in the operation: %s: %w", storage.ErrTxEnded, whatStays, err)
	case ours && refusalReasons[state] != "":
		refused := refusedFromDetail(pgErr, claims)
		refused.Stage = stage
		return s.refuse(ctx, refused)
	case ended || state == stateSerialization:
		for _, claim := range claims {
			if refused := s.refusalNow(ctx, claim); refused != nil {
				refused.Stage, refused.Err = stage, err
				return s.refuse(ctx, refused)
			}
		}
	}
	if pgErr == nil {
		return err
	}
	if stage == storage.StageSeal {
		err = nameTrick(err, state)
	}
	err = s.nameBehind(nameCached(s.nameLimit(err, pgErr)))
	if transient(pgErr) {
		return &TransientError{err}
	}
	return err
}

// transient reports whether another run may well succeed.
func transient(pgErr *pgconn.PgError) bool {
	switch pgErr.Code {
	case stateSerialization, stateDeadlock, stateLockTimeout, stateTerminated, stateTransaction:
		return true
	case stateNoStatement, stateStatementExists:
		return true // something else has used the connection; pgx prepares anew after an error
	case stateUnsupported:
		return pgErr.Routine == "RevalidateCachedQuery" // a prepared plan's table has changed
	}
	return false
}

// nameTrick says what an operation has done if its seal can't be executed.
func nameTrick(err error, state string) error {
	switch state {
	case stateReadOnly:
		return fmt.Errorf("%w (either the operation has made its transaction read only, where the seal can't write, or a deferred trigger has deferred others again, which write behind the seal)", err)
	case stateNoRights:
		return fmt.Errorf("%w at the seal: %w (an operation must keep the role that it began with: no SET ROLE, RESET ROLE or SET SESSION AUTHORIZATION)", ErrMissingRights, err)
	}
	return err
}

// ErrFenceBehind: a fence is behind its history, so that the position which it would
// move to is taken already: a part of the schema's tables was restored. The message says
// what the owner of the schema runs.
var ErrFenceBehind = errors.New("postgres: fence is behind its history")

// nameBehind names the error of a move that found its position taken.
func (s *Store) nameBehind(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != stateUnique || pgErr.SchemaName != s.cfg.Schema || pgErr.ConstraintName != "event_pkey" {
		return err
	}
	return fmt.Errorf("%w: its table was restored without the history, or changed by hand; the owner of the schema runs: select %s.repair(): %w",
		ErrFenceBehind, schemaIdentifier(s.cfg.Schema), err)
}

// nameLimit says which setting of ours an error of the server's comes from: who
// reads it at night looks into the server's configuration otherwise.
func (s *Store) nameLimit(err error, pgErr *pgconn.PgError) error {
	switch {
	case pgErr.Code == stateLockTimeout:
		return fmt.Errorf("%w (postgres.Config.LockTimeout is %v)", err, s.cfg.LockTimeout)
	case pgErr.Code == stateIdle:
		return fmt.Errorf("%w (postgres.Config.IdleTimeout is %v; a long decision belongs between two transactions of a guard.Hold)", err, s.cfg.IdleTimeout)
	case pgErr.Code == stateTransaction:
		return fmt.Errorf("%w (transaction_timeout of the server, the database or the role: guarded transactions keep to it)", err)
	case pgErr.Code == stateCanceled && strings.Contains(pgErr.Message, "statement timeout"):
		return fmt.Errorf("%w (postgres.Config.StatementTimeout is %v)", err, s.cfg.StatementTimeout)
	}
	return err
}

// refusedFromDetail reads what the server found under its lock.
func refusedFromDetail(pgErr *pgconn.PgError, claims []storage.Claim) *storage.RejectedError {
	var d struct {
		Resource string
		Epoch    int64
		Token    fence.Token
		Holder   string
		Since    time.Time
		Age      float64
	}
	_ = json.Unmarshal([]byte(pgErr.Detail), &d) // what is missing stays zero
	grant := claims[0].Grant
	for _, c := range claims {
		if c.Grant.Resource == d.Resource {
			grant = c.Grant
		}
	}
	var advice error
	if pgErr.Hint != "" {
		advice = errors.New(pgErr.Hint)
	}
	return &storage.RejectedError{
		Reason:  refusalReasons[pgErr.Code],
		Grant:   grant,
		Current: fence.Grant{Resource: grant.Resource, Epoch: d.Epoch, Token: d.Token, Holder: d.Holder},
		Since:   d.Since,
		Err:     advice,
		Age:     time.Duration(d.Age * float64(time.Second)),
	}
}

// refuse records a refusal, in a transaction of its own, and returns its error.
func (s *Store) refuse(ctx context.Context, r *storage.RejectedError) error {
	ctx, cancel := s.cleanup(ctx)
	defer cancel()
	_, r.RecordErr = s.transact(ctx, fmt.Sprintf(s.sql.record,
		text(r.Grant.Resource), text(string(r.Reason)), text(string(r.Stage)), r.Grant.Epoch, r.Grant.Token, text(r.Grant.Holder),
		r.Current.Epoch, r.Current.Token, text(r.Current.Holder), timestamp(r.Since)), "")
	if r.RecordErr != nil {
		s.cfg.Logger.Error("postgres: a refusal could not be recorded", "resource", r.Grant.Resource, "token", r.Grant.Token, "error", r.RecordErr)
	}
	return r
}
