package postgres_test

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// schedule is one random sequence of what holders of a few resources, the network
// and the operators of a database may do, one step at a time. The holders make the calls
// that a Guard makes; a proxy loses their COMMITs, or lets them arrive late.
type schedule struct {
	*rapid.T
	ctx  context.Context
	db   *scheduleDB
	seen map[string]int // what came about, over all schedules

	prefix    string // of the names of this schedule's resources
	resources []string
	epoch     int64
	token     fence.Token // the last that was issued
	runs      int         // how many transactions have begun

	world  world
	backup *world       // nil if there is none
	pruned bool         // history was deleted
	back   bool         // the database went back
	denied map[int]bool // transactions that were said not to have taken effect

	holders []*holder
	turn    *holder // whose turn it is, for how many steps
	left    int
	late    []*run // COMMITs under way
}

// TestSchedules_LoseNoUpdate checks random schedules against what the data has to be. The same seed makes the same
// schedules: 100 of seed 1, unless -rapid.checks and -rapid.seed say otherwise (a seed of 0 chooses one).
func TestSchedules_LoseNoUpdate(t *testing.T) {
	t.Parallel()
	rapidDefaults(t, map[string]string{"checks": "100", "seed": "1", "shrinktime": "10s", "nofailfile": "true"})
	db := newScheduleDB(t)
	seen, count := map[string]int{}, 0
	rapid.Check(t, func(r *rapid.T) {
		count++
		newSchedule(r, t.Context(), db, seen, count).run()
	})
	t.Logf("%d schedules: %v", count, seen)
	if count < 100 {
		return
	}
	for _, what := range []string{
		"claimed", "claim evicted", "claim collision", "claim stale", "claim went back", "epoch raised",
		"committed", "stale", "overtaken", "went back", "transient", "several resources", "from memory",
		"doubt applied", "doubt not applied", "outcome pruned", "late COMMIT applied", "late COMMIT rejected", "reply lost",
		"killed", "restored", "history deleted",
		"leased committed", "leased held", "leased late COMMIT applied",
		"own committed", "own busy", "own held", "own in doubt waits", "own late COMMIT applied",
	} {
		require.Positive(t, seen[what], what)
	}
}

func rapidDefaults(t *testing.T, values map[string]string) {
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range values {
		if name = "rapid." + name; !given[name] {
			before := flag.Lookup(name).Value.String()
			require.NoError(t, flag.Set(name, value))
			t.Cleanup(func() { require.NoError(t, flag.Set(name, before)) })
		}
	}
}

func newSchedule(r *rapid.T, ctx context.Context, db *scheduleDB, seen map[string]int, number int) *schedule {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	r.Cleanup(cancel)
	s := &schedule{T: r, ctx: ctx, db: db, seen: seen, prefix: fmt.Sprintf("%d/", number), world: newWorld(), denied: map[int]bool{}}
	s.epoch = db.epoch(s)
	for _, name := range []string{"a", "a", "a", "ab", "ab", "abc"}[s.upTo(5, "resources")] {
		s.resources = append(s.resources, s.prefix+string(name))
	}
	db.exec(s, "insert into link (resource) select unnest($1::text[])", s.resources)
	s.world.chains = db.chains(s)
	for i := range 2 + s.upTo(1, "more holders") {
		s.holders = append(s.holders, s.newHolder(fmt.Sprintf("h%d", i)))
	}
	return s
}

// newHolder returns one that has grants of its own, those of another holder (they
// have travelled), or equal ones (they were issued twice).
func (s *schedule) newHolder(name string) *holder {
	h := &holder{s: s, name: name, grants: map[string]fence.Grant{}, seen: map[string]storage.Position{}}
	h.forgetAll()
	kind := s.upTo(9, "kind of holder")
	for _, r := range s.resources {
		if len(s.holders) == 0 || kind > 7 {
			h.grants[r] = s.issue(h, r)
			continue
		}
		g := s.holders[0].grants[r]
		if kind == 7 {
			g.Holder = name
		}
		h.grants[r] = g
	}
	return h
}

// issue returns a new grant; or that of another holder, which has travelled; seldom one
// of a new epoch, or a token that was issued before.
func (s *schedule) issue(h *holder, resource string) fence.Grant {
	last, kind := s.world.claimed[resource], s.upTo(19, "kind of grant")
	switch {
	case kind == 19 && s.epoch < s.db.startEpoch+5:
		s.epoch++
		s.seen["epoch raised"]++
	case kind >= 17 && last.Token > 0:
		last.Holder = h.name
		return last
	case kind >= 7 && last.Token > 0 && last.Epoch == s.epoch:
		return last
	}
	s.token++
	return fence.Grant{Resource: resource, Epoch: s.epoch, Token: s.token, Holder: h.name}
}

func (s *schedule) upTo(n int, what string) int { return evenly(n+1).Draw(s.T, what) }

// evenly makes the numbers below n, all about equally likely: those of rapid itself are mostly small.
func evenly(n int) *rapid.Generator[int] {
	return rapid.Custom(func(t *rapid.T) (number int) {
		for range bits.Len(uint(n)) + 4 {
			number *= 2
			if rapid.Bool().Draw(t, "bit") {
				number++
			}
		}
		return number % n
	})
}

func (s *schedule) run() {
	defer s.end()
	for range 25 + s.upTo(25, "steps") {
		s.step()
	}
	for _, h := range s.holders {
		if h.run != nil && h.run.own {
			h.rollback()
		}
	}
	for len(s.late) > 0 {
		s.deliver()
	}
	for _, h := range s.holders {
		if h.doubt != nil {
			h.resolve()
		}
	}
	s.check()
}

func (s *schedule) end() {
	for _, h := range s.holders {
		h.rollback()
	}
	for _, r := range s.late {
		_ = r.held.Drop(context.Background())
	}
}

func (s *schedule) step() {
	switch kind := s.upTo(99, "step"); {
	case kind < 80:
		s.goOn()
	case kind < 84:
		s.deliver()
	case kind < 88:
		s.db.save(s)
		world := s.world.clone()
		s.backup = &world
	case kind < 96:
		s.restore()
	case kind < 99:
		if open := s.open(); len(open) > 0 {
			r := open[s.upTo(len(open)-1, "backend")]
			s.db.kill(s, r.pid)
			r.killed = true
			s.seen["killed"]++
		}
	default:
		s.db.deleteHistory(s, fmt.Sprintf("seq %% %d = 0", s.upTo(2, "of each")+1))
		s.pruned = true
		s.seen["history deleted"]++
	}
}

// goOn takes a step of one holder, which goes on for a while: else few transactions would get to their end.
func (s *schedule) goOn() {
	if s.left == 0 {
		s.turn, s.left = s.holders[s.upTo(len(s.holders)-1, "holder")], 1+s.upTo(5, "steps of the holder")
	}
	s.left--
	s.turn.step()
}

func (s *schedule) deliver() {
	if len(s.late) == 0 {
		return
	}
	i := s.upTo(len(s.late)-1, "late")
	r := s.late[i]
	if !r.own && s.locked(r.claims...) {
		return
	}
	s.late = append(s.late[:i:i], s.late[i+1:]...)
	answer, err := r.held.Deliver(s.ctx)
	s.Logf("the COMMIT of %v arrives late: %+v (%v)", r, answer, err)
	if s.hasCommitted(r) {
		s.seen[r.kind()+"late COMMIT applied"]++
	} else {
		s.seen["late COMMIT rejected"]++
	}
}

func (s *schedule) open() []*run {
	open := slices.Clone(s.late)
	for _, h := range s.holders {
		if h.run != nil {
			open = append(open, h.run)
		}
	}
	return slices.DeleteFunc(open, func(r *run) bool { return r.killed })
}

// locked reports whether a transaction that claims by itself has locked the fence of any of claims.
func (s *schedule) locked(claims ...storage.Claim) bool {
	return slices.ContainsFunc(s.open(), func(r *run) bool {
		return r.own && slices.ContainsFunc(claims, func(c storage.Claim) bool {
			return slices.ContainsFunc(r.claims, func(o storage.Claim) bool { return o.Grant.Resource == c.Grant.Resource })
		})
	})
}

func (s *schedule) restore() {
	if s.backup == nil || maps.Equal(s.backup.applied, s.world.applied) {
		return // it would lose nothing
	}
	s.Logf("the database is restored")
	for _, r := range s.open() {
		s.db.kill(s, r.pid)
		r.killed = true
	}
	for _, r := range s.late {
		require.NoError(s, r.held.Drop(s.ctx))
	}
	s.late = nil
	s.db.restore(s)
	s.world = s.backup.clone()
	s.back = true
	s.seen["restored"]++
	// A holder without memory goes first, and takes the positions that others have seen.
	s.turn, s.left = s.holders[s.upTo(len(s.holders)-1, "restarted")], 6
	s.turn.forgetAll()
	s.turn.seen = map[string]storage.Position{}
}

// link is the last write of a resource's data: each increments the count and extends the digest by
// the data that it has read. So a write based on anything but the latest data is detected. Links are
// only inserted, so no transaction waits for another: the fence alone keeps them apart.
type link struct {
	Count  int64
	Digest string
}

type world struct {
	chains  map[string]link
	claimed map[string]fence.Grant // the last that was
	applied map[int]bool           // numbers of transactions
	numbers map[int64]string       // the resources that have them
}

func newWorld() world {
	return world{map[string]link{}, map[string]fence.Grant{}, map[int]bool{}, map[int64]string{}}
}

func (w world) clone() world {
	return world{maps.Clone(w.chains), maps.Clone(w.claimed), maps.Clone(w.applied), maps.Clone(w.numbers)}
}

// next is the link of resource that r writes, which has read others.
func next(r *run, resource string) link {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.rests)) {
		text.WriteString(r.rests[name].Digest)
	}
	fmt.Fprintf(&text, "%d %s", r.number, resource)
	return link{r.rests[resource].Count + 1, fmt.Sprintf("%x", sha256.Sum256([]byte(text.String())))[:16]}
}

func (s *schedule) hasClaimed(c storage.Claim) {
	before := s.world.claimed[c.Grant.Resource]
	order := c.Grant.Compare(before)
	require.GreaterOrEqual(s, order, 0, "G3: %v was claimed after %v", c.Grant, before)
	if order == 0 {
		require.Equal(s, before.Holder, c.Grant.Holder, "G2: one token of two holders was claimed: %v", c.Grant)
	}
	s.world.claimed[c.Grant.Resource] = c.Grant
	s.world.numbers[c.Resource] = c.Grant.Resource
	s.seen["claimed"]++
}

// hasCommitted reports whether a transaction has committed by now. It requires that it was allowed to, and
// applies its writes to the world.
func (s *schedule) hasCommitted(r *run) bool {
	var there bool
	require.NoError(s, s.db.pool.QueryRow(s.ctx, "select exists (select from fence.history where tx = $1 and kind = 'w')", r.tx).Scan(&there))
	if !there {
		return false
	}
	s.Logf("%v has committed: it rests on %v and writes %v", r, r.rests, r.writes)
	require.False(s, s.denied[r.number], "G4: %v was said not to have taken effect", r)
	for _, c := range r.claims {
		name := c.Grant.Resource
		if r.own {
			require.Positive(s, c.Grant.Compare(s.world.claimed[name]), "G3: %v claimed after %v", r, s.world.claimed[name])
			s.hasClaimed(c)
			s.token = max(s.token, c.Grant.Token)
		}
		require.Equal(s, s.world.claimed[name], c.Grant, "G3: %v committed under a grant that isn't the last", r)
		require.Equal(s, s.world.chains[name], r.rests[name], "G2, G6: %v rests on other data of %s than there was at its commit", r, name)
	}
	maps.Copy(s.world.chains, r.writes)
	s.world.applied[r.number] = true
	s.seen[r.kind()+"committed"]++
	if len(r.claims) > 1 {
		s.seen["several resources"]++
	}
	s.check()
	return true
}

func (s *schedule) check() {
	require.Equal(s, s.world.chains, s.db.chains(s), "the data isn't what committed")
}

// superseded reports whether a grant later than one of claims was claimed. A number
// that was lost with a database that went back may be another resource's by now.
func (s *schedule) superseded(claims []storage.Claim) bool {
	return slices.ContainsFunc(claims, func(c storage.Claim) bool {
		return s.world.claimed[s.world.numbers[c.Resource]].Compare(c.Grant) > 0 || s.world.claimed[c.Grant.Resource].Compare(c.Grant) > 0
	})
}

type scheduleDB struct {
	*faulty
	stores          []*postgres.Store // of each level
	quiet, evicting *postgres.Store   // claims of the one evict nothing
	impatient       *postgres.Store
	startEpoch      int64
}

func newScheduleDB(t *testing.T) *scheduleDB {
	db := &scheduleDB{faulty: newFaulty(t, pgx.ReadCommitted)}
	// Without its triggers the owner may delete history, and put a fence back.
	mustExec(t, db.pool, `alter table fence.history disable trigger user; alter table fence.resource disable trigger user;
		create table link (id bigserial, resource text not null, count bigint not null default 0, digest text not null default '');
		create table saved_id (last bigint);
		alter function fence.stale_backends rename to all_stale_backends;
		create function fence.stale_backends(p_name text, p_epoch bigint, p_token bigint) returns table (o_pid integer, o_transaction text) language sql as $$
			select * from fence.all_stale_backends(p_name, p_epoch, p_token) where pg_catalog.current_setting('schedule.evicts', true) operator(pg_catalog.=) 'on' $$`)
	for _, table := range saved {
		mustExec(t, db.pool, fmt.Sprintf("create table saved_%s as select * from %s limit 0", table.name, table.from))
	}
	patient := func(level pgx.TxIsoLevel) *postgres.Config {
		return postgres.Config{Isolation: level, StatementTimeout: time.Hour}.With(postgres.Times{Lock: time.Hour, Idle: time.Hour, Network: time.Hour, Evict: time.Hour})
	}
	for _, level := range levels {
		db.stores = append(db.stores, newStore(t, db.through, patient(level)))
	}
	db.impatient = newStore(t, db.through, postgres.Config{}.With(postgres.Times{Lock: 20 * time.Millisecond}))
	db.quiet = newStore(t, db.pool, patient(pgx.ReadCommitted))
	db.evicting = newStore(t, openPool(t, db.dsn, with(map[string]string{"schedule.evicts": "on"})), patient(pgx.ReadCommitted))
	return db
}

var saved = []struct{ name, from, where string }{
	{"history", "fence.history", "resource in (select id from fence.resource where name like $1)"},
	{"resource", "fence.resource", "name like $1"},
	{"link", "link", "resource like $1"},
}

func (db *scheduleDB) exec(s *schedule, sql string, args ...any) {
	_, err := db.pool.Exec(s.ctx, sql, args...)
	require.NoError(s, err, sql)
}

func (db *scheduleDB) epoch(s *schedule) int64 {
	require.NoError(s, db.pool.QueryRow(s.ctx, "select epoch from fence.setting").Scan(&db.startEpoch))
	return db.startEpoch
}

func lastLink(ctx context.Context, tx pgx.Tx, resource string) (l link, err error) {
	err = tx.QueryRow(ctx, "select count, digest from link where resource = $1 order by id desc limit 1", resource).Scan(&l.Count, &l.Digest)
	return l, err
}

func (db *scheduleDB) chains(s *schedule) map[string]link {
	chains := map[string]link{}
	rows, err := db.pool.Query(s.ctx, "select distinct on (resource) resource, count, digest from link where resource like $1 order by resource, id desc", s.prefix+"%")
	require.NoError(s, err)
	var name string
	var l link
	_, err = pgx.ForEachRow(rows, []any{&name, &l.Count, &l.Digest}, func() error { chains[name] = l; return nil })
	require.NoError(s, err)
	return chains
}

// save keeps the whole state of the schedule's resources, and restore puts it back,
// the next number of a resource included, as a volume would.
func (db *scheduleDB) save(s *schedule) {
	sql := "delete from saved_id; insert into saved_id select last_value from fence.resource_id_seq;"
	for _, t := range saved {
		sql += fmt.Sprintf("delete from saved_%s; insert into saved_%[1]s select * from %[2]s where %[3]s;", t.name, t.from, t.where)
	}
	db.exec(s, s.filled(sql))
}

func (db *scheduleDB) restore(s *schedule) {
	sql := ""
	for _, t := range saved {
		sql += fmt.Sprintf("delete from %s where %s; insert into %[1]s select * from saved_%[3]s;", t.from, t.where, t.name)
	}
	db.exec(s, s.filled(sql+"select setval('fence.resource_id_seq', last) from saved_id"))
}

func (db *scheduleDB) deleteHistory(s *schedule, condition string) {
	db.exec(s, s.filled("delete from fence.history where resource in (select id from fence.resource where name like $1) and "+condition))
}

func (s *schedule) filled(sql string) string { return strings.ReplaceAll(sql, "$1", "'"+s.prefix+"%'") }

func (db *scheduleDB) kill(s *schedule, pid int) {
	db.exec(s, "select pg_terminate_backend($1, 60000)", pid)
}

func (db *scheduleDB) commit(s *schedule, r *run, fault *pgproxy.Action) (moved []storage.Claim, faulty bool, err error) {
	db.proxy.OnCommit(func(string) *pgproxy.Action {
		faulty = fault != nil
		return fault
	})
	moved, err = r.txn.Commit(s.ctx, nil)
	db.proxy.OnCommit(nil)
	if faulty {
		require.NoError(s, fault.Wait(s.ctx))
		db.conns.settle()
	}
	return moved, faulty, err
}
