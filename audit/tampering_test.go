package audit_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// evidence is a database with a history of everything, which each kind of tampering changes in a copy.
var evidence = pgserver.Template{Prepare: func(ctx context.Context, pool *pgxpool.Pool) (err error) {
	if _, err := postgres.Migrate(ctx, pool, ""); err != nil {
		return err
	}
	defer func() {
		if failed := recover(); failed != nil {
			err = fmt.Errorf("making the evidence: %v", failed)
		}
	}()
	makeEvidence(newHistory(outsideTests{ctx}, pool, 1))
	_, err = pool.Exec(ctx, tamperingFunctions)
	return err
}}

// outsideTests is a reporter that panics.
type outsideTests struct{ ctx context.Context }

func (outsideTests) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (outsideTests) FailNow()                          { panic("failed") }
func (outsideTests) Helper()                           {}
func (r outsideTests) Context() context.Context        { return r.ctx }

// makeEvidence makes these histories:
//
//	sku/1  1 claim, 2 3 4 writes, 5 claim, 6 write with a kept operation, 7 void, 8 write
//	sku/2  1 claim, 2 write (of the transaction of sku/1's 4), 3 claim, 4 write
//	sku/3  pruned up to 4: 1 claim, 4 5 6 writes
//	sku/4  pruned up to 3: 3 claim, 4 write
//	sku/5  1 2 claims of epoch 2 with high tokens
//	sku/6  on hold: 1 claim, 2 write
//
// and rejections of sku/1: token 101 as stale, and of sku/2: as overtaken.
func makeEvidence(h *history) {
	h.resources = []string{"sku/1", "sku/2", "sku/3", "sku/4", "sku/5", "sku/6"}
	write := func(resources ...string) {
		var claims []storage.Claim
		var moves []storage.Move
		for _, r := range resources {
			claims = append(claims, h.last[r])
			h.keys++
			moves = append(moves, storage.Move{Ops: []storage.OpRecord{{ID: fmt.Sprint("op-", h.keys), Name: "sell", Attrs: map[string]string{"qty": "2"}}}})
		}
		if len(resources) == 1 && h.last["sku/1"].Seq == 5 {
			moves[0].Kept = []storage.Kept{{Key: storage.OnceKey{Key: "key-1"}}}
		}
		for _, c := range h.commit(moves, claims...) {
			h.last[c.Grant.Resource] = c
		}
	}
	claim := func(resource string, epoch int64, token fence.Token) {
		h.epoch = epoch
		h.claimAs(resource, token)
	}
	claim("sku/1", 1, 101)
	old := h.last["sku/1"]
	claim("sku/2", 1, 102)
	write("sku/1")
	write("sku/1")
	write("sku/1", "sku/2")
	claim("sku/1", 1, 111)
	require.Error(h.t, h.attempt(old))
	write("sku/1")
	c := h.last["sku/1"]
	_, err := h.store.Resolve(h.t.Context(), storage.InDoubt{Claims: []storage.Claim{c}, Tx: 77})
	require.NoError(h.t, err)
	claims, err := h.store.Claim(h.t.Context(), storage.Claim{Grant: c.Grant})
	require.NoError(h.t, err)
	h.last["sku/1"] = claims[0]
	write("sku/1")
	claim("sku/2", 1, 112)
	old = h.last["sku/2"]
	write("sku/2")
	require.Error(h.t, h.attempt(old))

	claim("sku/3", 1, 113)
	for range 5 {
		write("sku/3")
	}
	claim("sku/4", 1, 114)
	write("sku/4")
	claim("sku/4", 1, 115)
	write("sku/4")
	for resource, end := range map[string]int{"sku/3": 4, "sku/4": 3} {
		h.withOldEntries(fmt.Sprintf("select fence.prune(array[id], array[%d::bigint]) from fence.resource where name = '%s'", end, resource))
	}
	claim("sku/6", 1, 116)
	write("sku/6")
	require.NoError(h.t, postgres.HoldHistory(h.t.Context(), h.pool, "", "sku/6", "case 7"))
	claim("sku/5", 2, 1<<40)
	claim("sku/5", 2, 1<<41)
}

// tamperingFunctions are what a skilled forger would write: rehash makes the hashes of a
// resource anew from a position on, and fit then makes its fence fit its last entry.
const tamperingFunctions = `
	create function rehash(p_name text, p_from bigint, p_to bigint) returns void language plpgsql as $$
	declare
		r fence.resource;
		e fence.history;
		h bytea;
	begin
		select * into r from fence.resource where name = p_name;
		select hash into h from fence.history where resource = r.id and seq = p_from - 1;
		h := coalesce(h, (select hash from fence.checkpoint where resource = r.id and first = p_from), sha256(convert_to('fencekit:' || p_name, 'UTF8')));
		for e in select * from fence.history where resource = r.id and seq between p_from and p_to order by seq loop
			h := sha256(h || int4send(e.resource) || int8send(e.seq) || charsend(e.kind) || int8send(e.claim) || int8send(e.tx) || xid8send(e.xid) || timestamptz_send(e.at)
				|| case when e.kind = 'c' then int8send(e.epoch) || int8send(e.token) || int4send(e.timeline) || int4send(octet_length(e.holder)) || convert_to(e.holder || e.name, 'UTF8')
				   else coalesce(convert_to(e.ops::text, 'UTF8'), '') end);
			update fence.history set hash = h where resource = r.id and seq = e.seq;
		end loop;
	end $$;
	create function fit(p_name text) returns void language sql as $$
		update fence.resource r set seq = e.seq, tx = e.tx, hash = e.hash, claim_seq = c.seq, claimed_at = c.at, epoch = c.epoch, token = c.token, holder = c.holder, prev_token = 0, sealed = '0'
		  from (select h.* from fence.history h join fence.resource f on f.id = h.resource where f.name = p_name order by h.seq desc limit 1) e
		  join fence.history c on c.resource = e.resource and c.seq = e.claim
		 where r.id = e.resource
	$$;
	create function id(p_name text) returns integer language sql as $$ select id from fence.resource where name = p_name $$`

// A tampering is something that someone with the owner's or a superuser's rights does to the
// tables, and a finding that says so.
type tampering struct {
	what string // a line of the table in the guide
	sql  string
	want string
	// after is executed when the triggers are on again.
	after string
	// known: it is found only by heads that were kept elsewhere.
	known bool
}

func (x tampering) apply(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	trigger := func(does string) {
		for table, names := range triggers {
			for _, name := range names {
				mustExec(t, pool, "alter table fence."+table+" "+does+" trigger "+name)
			}
		}
	}
	trigger("disable")
	if x.sql != "" {
		mustExec(t, pool, x.sql)
	}
	trigger("enable always")
	if x.after != "" {
		mustExec(t, pool, x.after)
	}
}

// Each kind of tampering with the tables is found, and named; and what was done to rows is found in an export as well.
func TestVerify_FindsTampering(t *testing.T) {
	t.Parallel()
	for _, x := range tamperings {
		t.Run(x.what, func(t *testing.T) {
			t.Parallel()
			pool := openPool(t, evidence.Database(t))
			known := heads(t, pool)
			x.apply(t, pool)
			v := audit.VerifyOptions{}
			r := verify(t, pool, v)
			if x.known {
				requireHonest(t, r)
				v.Known = known
				r = verify(t, pool, v)
			}
			require.Contains(t, texts(r), x.want)
			if x.after == "" && x.what != severalFences {
				require.Contains(t, texts(verifyExports(t, v, export(t, openHistory(t, pool), ""))), x.want)
			}
			for _, f := range r.Findings {
				require.NotRegexp(t, `(on|function) \.`, f.Expected+f.Found, "a name without its schema")
			}
		})
	}
}

// texts returns what the findings say.
func texts(r audit.Report) (all []string) {
	for _, f := range r.Findings {
		all = append(all, f.String())
	}
	return all
}

// heads returns where all histories end.
func heads(t testing.TB, pool *pgxpool.Pool) (all []audit.Head) {
	t.Helper()
	rows, err := pool.Query(t.Context(), "select name::text, seq::bigint, hash from fence.resource")
	require.NoError(t, err)
	var h audit.Head
	var hash []byte
	_, err = pgx.ForEachRow(rows, []any{&h.Resource, &h.Seq, &hash}, func() error {
		h.Hash = [32]byte(hash)
		all = append(all, h)
		return nil
	})
	require.NoError(t, err)
	return all
}
