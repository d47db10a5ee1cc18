package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/wire"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// Claim implements storage.Store, in one round trip.
func (s *Store) Claim(ctx context.Context, seen ...storage.Claim) ([]storage.Claim, error) {
	if err := storage.CheckClaims(seen); err != nil {
		return nil, err
	}
	if err := s.usable(ctx, seen); err != nil {
		return nil, err
	}
	inOrder := slices.SortedFunc(slices.Values(seen), func(a, b storage.Claim) int { return cmp.Compare(a.Grant.Resource, b.Grant.Resource) })
	var err error
	for range tries {
		var claims []storage.Claim
		var rejections []*storage.RejectedError
		claims, rejections, err = s.claimOnce(ctx, inOrder)
		if err == nil {
			errs := make([]error, len(rejections))
			for i, r := range rejections {
				errs[i] = s.reject(ctx, r)
			}
			return inOrderOf(seen, claims), errors.Join(errs...)
		}
		switch sqlstate.Of(err) {
		case sqlstate.LockTimeout:
			s.evict(ctx, inOrder)
			s.evictSilent(ctx, inOrder)
			continue
		case sqlstate.Serialization: // a resource was just retired
			continue
		}
		break
	}
	return nil, s.explain(ctx, failedAt("claim of "+namesOf(inOrder), err), false, storage.StageClaim, inOrder...)
}

// Look implements storage.Store.
func (s *Store) Look(ctx context.Context, seen ...storage.Claim) ([]storage.Claim, error) {
	if err := s.usable(ctx, seen); err != nil {
		return nil, err
	}
	a := arraysOf(seen)
	answer, err := s.transact(ctx, fmt.Sprintf(s.sql.look, a.names, a.seqs, a.txs), "")
	switch {
	case err != nil:
		return nil, s.named(failedAt("look at "+namesOf(seen), err))
	case len(answer.Rows) != len(seen):
		return nil, nil
	}
	claims := make([]storage.Claim, len(seen))
	for i, row := range answer.Rows {
		c := &claims[i]
		var holder []byte
		if _, err := fmt.Sscanf(strings.Join(row, " "), "%d %d %d %x %d %d", &c.Resource, &c.Grant.Epoch, &c.Grant.Token, &holder, &c.Seq, &c.Tx); err != nil {
			return nil, errLookAnswer
		}
		c.Grant.Resource, c.Grant.Holder, c.Looked = seen[i].Grant.Resource, string(holder), true
	}
	return claims, nil
}

func (s *Store) usable(ctx context.Context, claims []storage.Claim) error {
	err := cmp.Or(storage.CheckResources(claims), s.cfg.Shard.check(claims))
	if err == nil && !s.ready.Load() {
		err = s.Check(ctx)
	}
	return err
}

// Beside implements storage.Claimer. At the stricter levels a transaction's snapshot may be older than what it waited
// for.
func (s *Store) Beside(locker fence.Locker) (newHolder func() string, claims bool) {
	if s.cfg.Isolation != pgx.ReadCommitted { // mutant: own-claims-in-a-snapshot
		return nil, false
	}
	locks, ok := locker.(interface {
		Beside(pool *pgxpool.Pool, schema string) (newHolder func() string)
	})
	if !ok {
		return nil, true
	}
	return locks.Beside(s.pool, s.cfg.Schema), true
}

// leftToClaim are failures of a claim under leases after which Claim is called, which waits, evicts and raises the
// mark.
var leftToClaim = []string{sqlstate.LockTimeout, sqlstate.Canceled, sqlstate.ToCreate, sqlstate.Serialization, sqlstate.Deadlock}

// BeginOwn implements storage.Claimer. It begins with a round trip of its own, so a function that has begun to run
// waits for nothing but its own locks.
func (s *Store) BeginOwn(caller context.Context, limit time.Duration, seen ...storage.Claim) (storage.OwnTxn[pgx.Tx], []storage.Claim, error) {
	ctx, cancel := context.WithTimeout(caller, limit)
	defer cancel()
	err := s.usable(ctx, seen)
	leased := err == nil && seen[0].Grant.Token > 0
	for n := 1; err == nil; n++ {
		var t *txn
		if t, err = s.beginOwn(ctx, seen); err == nil {
			return t, t.claims, nil
		}
		switch state := sqlstate.Of(err); {
		case leased && slices.Contains(leftToClaim, state):
			return nil, nil, storage.ErrHeld
		case state == sqlstate.ToCreate && n < tries:
			_, err = s.transact(ctx, fmt.Sprintf(s.sql.createHere, s.patience(ctx), arraysOf(seen).names), "")
		}
		switch sqlstate.Of(err) {
		case sqlstate.Held:
			return nil, nil, storage.ErrHeld
		case sqlstate.LockTimeout, sqlstate.Canceled: // of create_here, or by a bound of the session's own
			ctx, cancel := context.WithTimeout(caller, limit+s.cfg.times.silence())
			defer cancel()
			s.evictSilent(ctx, seen)
			return nil, nil, storage.ErrBusy
		case sqlstate.Serialization, sqlstate.Deadlock:
			return nil, nil, storage.ErrBusy
		case sqlstate.ToCreate: // another call raises the mark, or creates: what that waits for doesn't hold up this one
			select {
			case <-time.After(statusEvery):
			case <-ctx.Done():
			}
			return nil, nil, storage.ErrBusy
		}
	}
	return nil, nil, s.explain(ctx, failedAt("claim of "+namesOf(seen), askedError(err)), false, storage.StageClaim, seen...)
}

// patience is how many milliseconds a statement of BeginOwn may take: half of what ctx leaves, so that there is time
// for its answer.
func (s *Store) patience(ctx context.Context) int64 {
	until, _ := ctx.Deadline()
	return max(1, ms(min(s.cfg.StatementTimeout, time.Until(until)/2)))
}

func (s *Store) beginOwn(ctx context.Context, seen []storage.Claim) (*txn, error) {
	conn, err := acquireConn(ctx, s.pool)
	if err != nil {
		return nil, failedAt("begin", err)
	}
	t := &txn{store: s, conn: conn, own: seen, id: newTxID()}
	t.wait = max(1, min(s.patience(ctx), ms(s.cfg.times.Fence))/int64(len(seen)))
	_, answer, _, err := t.deliver(ctx, nothing) // ctx is bounded, as by boundExchange
	if err = t.cause(ctx, err); err == nil {
		err = t.readOwn(answer)
	}
	if err != nil {
		t.Rollback(ctx)
		return nil, err
	}
	return t, nil
}

func (t *txn) readOwn(answer *wire.Answer) error {
	if !t.begun || t.xid == "" {
		wire.CloseNow(t.conn.Conn().PgConn())
		return errClaimAnswer
	}
	t.claims = make([]storage.Claim, len(t.own))
	claimed := newTxID() // the seal writes it
	row := answer.Ahead[len(answer.Ahead)-1].Row
	fields := strings.Fields(row[len(row)-3])
	if len(fields) != 5*len(t.claims) {
		return errClaimAnswer
	}
	for ; len(fields) > 0; fields = fields[5:] {
		place, err := strconv.Atoi(fields[0])
		if err != nil || place < 1 || place > len(t.claims) {
			return errClaimAnswer
		}
		c := &t.claims[place-1]
		c.Grant, c.Tx, c.Own = t.own[place-1].Grant, claimed, true
		if _, err := fmt.Sscan(strings.Join(fields[1:5], " "), &c.Resource, &c.Grant.Epoch, &c.Grant.Token, &c.Seq); err != nil {
			return err
		}
	}
	return nil
}

func inOrderOf(seen, claims []storage.Claim) []storage.Claim {
	all := make([]storage.Claim, len(seen))
	for i := range seen {
		if at := slices.IndexFunc(claims, func(c storage.Claim) bool { return c.Grant == seen[i].Grant }); at >= 0 {
			all[i] = claims[at]
		}
	}
	return all
}

func namesOf(claims []storage.Claim) string {
	names := make([]string, len(claims))
	for i, c := range claims {
		names[i] = c.Grant.Resource
	}
	return strings.Join(names, ", ")
}

func (s *Store) claimOnce(ctx context.Context, seen []storage.Claim) ([]storage.Claim, []*storage.RejectedError, error) {
	evict := s.evictSQL(seen, false)
	if s.simulated {
		evict = ""
	}
	answer, err := s.transact(ctx, s.claimSQL(seen), evict)
	if err != nil {
		return nil, nil, err
	}
	claims, rejections, err := readClaims(seen, answer)
	if err != nil {
		return nil, nil, err
	}
	s.reportEvicted(ctx, seen, answer.Rows[len(seen):], answer.After)
	return claims, rejections, nil
}

var (
	errClaimAnswer = errors.New("the answer lacks that of the claim: a pooler in between may have made it up")
	errLookAnswer  = errors.New("postgres: look: the answer isn't one of positions: a pooler in between may have made it up")
)

func readClaims(seen []storage.Claim, a *wire.Answer) (claims []storage.Claim, rejections []*storage.RejectedError, err error) {
	if len(a.Rows) < len(seen) {
		return nil, nil, errClaimAnswer
	}
	for _, row := range a.Rows[:len(seen)] {
		place, err := strconv.Atoi(row[0])
		if err != nil || place < 1 || place > len(seen) {
			return nil, nil, errClaimAnswer
		}
		c := storage.Claim{Grant: seen[place-1].Grant}
		if state := row[4]; state != "" {
			rejected := rejectionFromDetail(state, detailFromHex(row[5]), []storage.Claim{c})
			rejected.Stage = storage.StageClaim
			rejections = append(rejections, rejected)
			continue
		}
		if _, err := fmt.Sscan(strings.Join(row[1:4], " "), &c.Resource, &c.Seq, &c.Tx); err != nil {
			return nil, nil, err
		}
		claims = append(claims, c)
	}
	return claims, rejections, nil
}

func (s *Store) claimSQL(seen []storage.Claim) string {
	a := arraysOf(seen)
	return fmt.Sprintf(s.sql.claim, a.names, a.epochs, a.tokens, a.holders, newTxID(), a.seqs, a.txs)
}

func (s *Store) evictSQL(claims []storage.Claim, thorough bool) string {
	a := arraysOf(claims)
	return fmt.Sprintf(s.sql.evict, a.names, a.epochs, a.tokens, thorough)
}

// evict only logs failures, since it serves liveness only.
func (s *Store) evict(ctx context.Context, claims []storage.Claim) {
	s.evictBy(ctx, claims, s.evictSQL(claims, true))
}

// evictSilent ends transactions that make their own claims and wait for their clients within a statement.
func (s *Store) evictSilent(ctx context.Context, claims []storage.Claim) {
	s.evictBy(ctx, claims, fmt.Sprintf(s.sql.evictHere, arraysOf(claims).names))
}

func (s *Store) evictBy(ctx context.Context, claims []storage.Claim, sql string) {
	answer, err := s.transact(ctx, sql, "")
	if err != nil {
		answer = &wire.Answer{}
	}
	s.reportEvicted(ctx, claims, answer.Rows, err)
}

func (s *Store) reportEvicted(ctx context.Context, claims []storage.Claim, rows [][]string, err error) {
	var evicted, denied int
	if len(rows) > 0 {
		_, err = fmt.Sscan(strings.Join(rows[0], " "), &evicted, &denied)
	}
	if err == nil && evicted == 0 && denied == 0 {
		return
	}
	log := s.cfg.Logger.With("resource", namesOf(claims), "token", claims[0].Grant.Token)
	if err != nil {
		log.WarnContext(ctx, "postgres: eviction failed", "error", err)
	}
	if evicted > 0 {
		log.InfoContext(ctx, "postgres: evicted stale transactions", "count", evicted)
	}
	if denied > 0 {
		log.WarnContext(ctx, "postgres: stale transactions could not be evicted; grant this role pg_signal_backend, or run all holders under one role", "count", denied)
	}
}
