package epoch

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var template = pgserver.Template{Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := postgres.Migrate(ctx, pool, "")
	return err
}}

// database is a database under test.
type database struct {
	t     *testing.T
	dsn   string
	owner *pgxpool.Pool
	store *postgres.Store
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	d := &database{t: t, dsn: template.Database(t)}
	d.owner = d.pool("")
	var err error
	d.store, err = postgres.NewStore(d.owner, nil)
	require.NoError(t, err)
	return d
}

// pool returns a pool whose sessions have a role; "" is the owner of the schema.
func (d *database) pool(role string) *pgxpool.Pool {
	d.t.Helper()
	config, err := pgxpool.ParseConfig(d.dsn)
	require.NoError(d.t, err)
	if role != "" {
		config.ConnConfig.RuntimeParams["role"] = role
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(d.t, err)
	d.t.Cleanup(pool.Close)
	return pool
}

func (d *database) sql(sql string) {
	d.t.Helper()
	_, err := d.owner.Exec(d.t.Context(), sql)
	require.NoError(d.t, err)
}

func (d *database) read(pool *pgxpool.Pool) (got Database, err error) {
	err = record.ReadTx(d.t.Context(), pool, "", func(tx pgx.Tx) (err error) {
		got, err = ReadIn(d.t.Context(), tx, postgres.DefaultSchema)
		return err
	})
	return got, err
}

func (d *database) raise(pool *pgxpool.Pool, to int64, dry bool) (bool, error) {
	return raise(to).Apply(d.t.Context(), pool, postgres.DefaultSchema, dry)
}

func (d *database) claim(epoch int64, token fence.Token) storage.Claim {
	d.t.Helper()
	claims, err := d.store.Claim(d.t.Context(), storage.Claim{Grant: grant(epoch, token)})
	require.NoError(d.t, err)
	return claims[0]
}

// rejects requires that a claim is rejected for a reason.
func (d *database) rejects(epoch int64, token fence.Token, reason storage.Reason) {
	d.t.Helper()
	_, err := d.store.Claim(d.t.Context(), storage.Claim{Grant: grant(epoch, token)})
	rejected := new(storage.RejectedError)
	require.ErrorAs(d.t, err, &rejected)
	require.Equal(d.t, reason, rejected.Reason)
}

// write commits a guarded transaction, and returns the claim at its new position.
func (d *database) write(c storage.Claim) (storage.Claim, error) {
	txn, err := d.store.Begin(d.t.Context(), c)
	require.NoError(d.t, err)
	moved, err := txn.Commit(d.t.Context(), nil)
	if err != nil {
		return c, err
	}
	return moved[0], nil
}

func raise(epoch int64) Raise {
	return Raise{Epoch: epoch, Token: 40, Reason: "etcd was restored", Operator: "me@here"}
}

func grant(epoch int64, token fence.Token) fence.Grant {
	return fence.Grant{Resource: "sku/1", Epoch: epoch, Token: token, Holder: "a"}
}

// Claims of earlier epochs are rejected from the raise on, and those of the new one are not,
// whatever their tokens. A grant that has a fence keeps it until the next claim.
func TestRaise_EndsEarlierEpochs(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	old := d.claim(1, 50)
	done, err := d.raise(d.owner, 9, true)
	require.NoError(t, err)
	require.True(t, done)
	now, err := d.read(d.owner)
	require.NoError(t, err)
	require.Equal(t, Database{Number: 1, MaxJump: 10, Highest: old.Grant}, now, "a dry run")

	done, err = d.raise(d.owner, 1000, false)
	require.NoError(t, err)
	require.True(t, done)
	now, err = d.read(d.owner)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), now.Raised.At, time.Hour)
	require.NotEmpty(t, now.Raised.Role)
	now.Raised.At, now.Raised.Role = time.Time{}, ""
	require.Equal(t, Database{Number: 1000, MaxJump: 10, Highest: old.Grant, Raised: raise(1000)}, now)

	old, err = d.write(old)
	require.NoError(t, err)
	d.rejects(1, 51, storage.ReasonEpochBehind)
	d.rejects(1000, 40+1<<40+1, storage.ReasonTokenJump)
	d.claim(1000, 3)
	_, err = d.write(old)
	require.ErrorIs(t, err, storage.ErrStaleToken)
}

// It is raised by the owner alone, and only upwards; the reader role may read it.
func TestRaise_OnlyUp(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	unique := strings.ToLower(rand.Text())
	roles := postgres.Roles{App: "app_" + unique, Reader: "reader_" + unique}
	require.NoError(t, postgres.GrantRoles(t.Context(), d.owner, postgres.DefaultSchema, roles))
	for _, role := range []string{roles.App, roles.Reader} {
		t.Cleanup(func() { _, _ = d.owner.Exec(context.Background(), "drop owned by "+role+"; drop role "+role) })
		_, err := d.raise(d.pool(role), 2, false)
		require.ErrorContains(t, err, "42501")
	}
	for _, c := range []struct {
		to        int64
		dry, done bool
	}{{5, false, true}, {2, true, false}, {2, false, false}, {5, true, false}, {5, false, false}} {
		done, err := d.raise(d.owner, c.to, c.dry)
		require.NoError(t, err)
		require.Equal(t, c.done, done, "%v", c)
	}
	got, err := d.read(d.pool(roles.Reader))
	require.NoError(t, err)
	require.EqualValues(t, 5, got.Number)
	require.Equal(t, raise(5).Reason, got.Raised.Reason)
}

// Only the table of settings was put back: the fences still say which epoch they have seen. Without
// its row nothing is known.
func TestRead_TakesTheFencesEpochIfItIsHigher(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.claim(4, 5)
	d.sql("alter table fence.setting disable trigger all; update fence.setting set epoch = 1")
	got, err := d.read(d.owner)
	require.NoError(t, err)
	require.EqualValues(t, 4, got.Number)
	d.sql("delete from fence.setting")
	_, err = d.read(d.owner)
	require.ErrorIs(t, err, pgx.ErrNoRows)
}

// keys are keys that hold these epochs, in an etcd at revision 100.
func keys(numbers ...int64) (all []inspect.Epoch) {
	for _, n := range numbers {
		all = append(all, inspect.Epoch{Number: n, Revision: 100})
	}
	return all
}

// databases have seen these epochs.
func databases(numbers ...int64) (all []Database) {
	for _, n := range numbers {
		all = append(all, Database{Number: n, MaxJump: 10})
	}
	return all
}

func TestCompare_SaysWhyClaimsAreRejected(t *testing.T) {
	t.Parallel()
	fenceAt := func(epoch int64, token fence.Token) Database {
		return Database{Number: 5, MaxJump: 10, Highest: fence.Grant{Epoch: epoch, Token: token}}
	}
	for _, c := range []struct {
		key  int64
		d    Database
		want Drift
	}{
		{0, fenceAt(5, 1), NoEpoch},
		{4, fenceAt(5, 1), Behind},
		{5, fenceAt(5, 100), ""},
		{5, fenceAt(5, 101), TokensLow},
		{5, fenceAt(5, 100+FarAhead), TokensLow},
		{5, fenceAt(5, 101+FarAhead), Absurd},
		{5, fenceAt(4, 101), ""},
		{15, fenceAt(5, 101), ""},
		{16, fenceAt(5, 1), TooFar},
	} {
		require.Equal(t, c.want, Compare(keys(c.key)[0], c.d), "%d %v", c.key, c.d)
	}
	require.Equal(t, Behind, State{Keys: keys(5, 0, 4)}.Drift(fenceAt(5, 1)))
	require.EqualValues(t, "", State{Keys: keys(0, 5)}.Drift(fenceAt(5, 1)))
	require.EqualValues(t, 100, State{Keys: keys(1, 2)}.Revision())
}

func TestNext_IsAboveWhatWasAccepted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		keys      []inspect.Epoch
		databases []Database
		trust     Side
		want      int64
		says      string
	}{
		{keys(1), databases(1, 1), "", 2, ""},
		{keys(1), databases(1, 5), "", 6, ""},
		{keys(9), databases(1, 5), "", 10, ""},
		{keys(15), databases(1, 5), "", 16, ""},
		{keys(16), databases(1, 5), "", 0, "etcd's epoch is 16, and no database accepts more than 15. If you left out a database, add it. Otherwise --trust etcd raises the databases to 17"},
		{keys(16), databases(1, 5), Etcd, 17, ""},
		{keys(16), databases(1, 5), Databases, 0, "etcd's epoch 16 can't be lowered: a database has accepted it, or might"},
		{keys(25), databases(1, 5), Databases, 0, "etcd's epoch 25 can't be lowered"},
		{keys(25), databases(1, 5), Etcd, 26, ""},
		{keys(26), databases(1, 5), "", 0, "If etcd's was mistyped, --trust databases makes it 6"},
		{keys(26), databases(1, 5), Databases, 6, ""},
		{keys(26), databases(1, 5), Etcd, 27, ""},
		{keys(9), databases(5), Databases, 0, "etcd's epoch 9 can't be lowered"},
		{keys(4), databases(5), Databases, 6, ""},
		{keys(5), databases(5), Databases, 0, "etcd's epoch 5 can't be lowered"},
		{keys(0), databases(5), "", 0, "a key of etcd holds no epoch: with --trust databases it becomes 6"},
		{keys(0), databases(5), Etcd, 0, "a key of etcd holds no epoch"},
		{keys(0), databases(5), Databases, 6, ""},
		{keys(0, 5), databases(5), Databases, 6, ""},
		{keys(0, 9), databases(5), Databases, 10, ""},
		{keys(0, 9), databases(5), "", 0, "a key of etcd holds no epoch: with --trust databases it becomes 10"},
		{keys(0, 26), databases(5), Databases, 6, ""},
		// The slip of one prefix lowers no other, nor what is within reach of that, or of another database's limit.
		{keys(36, 9), databases(5), "", 0, "--trust databases makes it 10"},
		{keys(36, 9), databases(5), Databases, 10, ""},
		{keys(9, 36), databases(5), Databases, 10, ""},
		{keys(29, 9), databases(5), Databases, 0, "etcd's epoch 29 can't be lowered"},
		{keys(251), []Database{{Number: 5, MaxJump: 100}, {Number: 150, MaxJump: 10}}, Databases, 0, "etcd's epoch 251 can't be lowered"},
		{keys(351), []Database{{Number: 5, MaxJump: 100}, {Number: 150, MaxJump: 10}}, Databases, 151, ""},
		{keys(fence.MaxEpoch), databases(1), Etcd, 0, "the highest there is"},
		{keys(fence.MaxEpoch), databases(1), Databases, 2, ""},
		{keys(1), databases(fence.MaxEpoch), "", 0, "the highest there is"},
	} {
		got, err := State{Keys: c.keys, Databases: c.databases}.Next(c.trust)
		require.Equal(t, c.want, got, "%v", c)
		if c.says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.says)
		}
	}
}
