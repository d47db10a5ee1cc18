package epoch

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const schema = postgres.DefaultSchema

var template = pgserver.Template{Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := postgres.Migrate(ctx, pool, ""); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "create table item (key text primary key, value bigint not null)")
	return err
}}

// database is a database under test.
type database struct {
	t     testing.TB
	dsn   string
	owner *pgxpool.Pool
	store *postgres.Store
}

func newDatabase(t testing.TB) *database {
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

// roles makes an app role and a reader role, and returns pools of theirs.
func (d *database) roles() (app, reader *pgxpool.Pool) {
	d.t.Helper()
	unique := strings.ToLower(rand.Text())
	names := postgres.Roles{App: "app_" + unique, Reader: "reader_" + unique}
	require.NoError(d.t, postgres.GrantRoles(d.t.Context(), d.owner, schema, names))
	for _, name := range []string{names.App, names.Reader} {
		d.t.Cleanup(func() {
			_, _ = d.owner.Exec(context.Background(), "drop owned by "+name)
			_, _ = d.owner.Exec(context.Background(), "drop role "+name)
		})
	}
	return d.pool(names.App), d.pool(names.Reader)
}

func (d *database) sql(sql string, args ...any) {
	d.t.Helper()
	_, err := d.owner.Exec(d.t.Context(), sql, args...)
	require.NoError(d.t, err)
}

func (d *database) read() Database {
	d.t.Helper()
	got, err := Read(d.t.Context(), d.owner, schema)
	require.NoError(d.t, err)
	return got
}

// raise raises the epoch as the owner.
func (d *database) raise(to int64) {
	d.t.Helper()
	done, err := raise(to).Apply(d.t.Context(), d.owner, schema, false)
	require.NoError(d.t, err)
	require.True(d.t, done)
}

func (d *database) claim(g fence.Grant) storage.Claim {
	d.t.Helper()
	claims, err := d.store.Claim(d.t.Context(), storage.Claim{Grant: g})
	require.NoError(d.t, err)
	return claims[0]
}

// rejects requires that a claim is rejected for a reason.
func (d *database) rejects(g fence.Grant, reason storage.Reason) {
	d.t.Helper()
	_, err := d.store.Claim(d.t.Context(), storage.Claim{Grant: g})
	rejected := new(storage.RejectedError)
	require.ErrorAs(d.t, err, &rejected)
	require.Equal(d.t, reason, rejected.Reason)
}

// write writes in a guarded transaction of its own, and returns the claim at its new position.
func (d *database) write(c storage.Claim) storage.Claim {
	d.t.Helper()
	moved, err := d.try(c)
	require.NoError(d.t, err)
	return moved
}

func (d *database) try(c storage.Claim) (storage.Claim, error) {
	ctx := d.t.Context()
	txn, err := d.store.Begin(ctx, c)
	if err != nil {
		return c, err
	}
	defer txn.Rollback(ctx)
	if err := txn.Run(ctx, storage.Func[pgx.Tx](insert)); err != nil {
		return c, err
	}
	moved, err := txn.Commit(ctx, nil)
	if err != nil {
		return c, err
	}
	return moved[0], nil
}

func insert(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "insert into item values ('x', 1) on conflict (key) do update set value = item.value + 1")
	return err
}

func raise(epoch int64) Raise {
	return Raise{Epoch: epoch, Token: 40, Reason: "etcd was restored", Operator: "me@here"}
}

func grant(epoch int64, token fence.Token, holder string) fence.Grant {
	return fence.Grant{Resource: "sku/1", Epoch: epoch, Token: token, Holder: holder}
}
