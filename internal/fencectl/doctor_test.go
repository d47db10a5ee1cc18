package fencectl

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/doctor"
)

// A healthy installation gives no finding: no false alarms.
func TestDoctor_FindsNothingWhereNothingIsWrong(t *testing.T) {
	t.Parallel()
	i, _ := onOwn(t, map[string]string{"shared_preload_libraries": "pg_stat_statements"})
	require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "up", "--database-url", i.dsn, "--app-role", "shop", "--reader-role", "audit").Code)
	i.sql("create role shop_1 login in role shop", "create role auditor login in role audit")
	held, err := newLocker(t, i.client, etcd.Config{Prefix: i.prefix}).Acquire(t.Context(), "sku/1")
	require.NoError(t, err)
	i.findsNothing()
	require.NoError(t, held.Release(t.Context()))

	got := fencectl(t, append([]string{"doctor"}, i.flags...)...)
	require.Empty(t, got.Stdout)
	require.Regexp(t, `^etcd at http://\S+, \S+/shop: \d+ checks, nothing found\n$`, got.Stderr)
	require.Equal(t, ended(cli.ExitOK, "", ""), fencectl(t, append([]string{"doctor", "--quiet"}, i.flags...)...))
	for what, flags := range map[string][]string{"etcd alone": i.flags[:4], "the database alone": i.flags[4:]} {
		code, found := examine(t, flags...)
		require.Empty(t, found, what)
		require.Equal(t, cli.ExitOK, code, what)
	}
	i.rolesSee()
	i.sql("create role fence_owner; grant create on database shop to fence_owner")
	i.own("fence_owner")
	i.findsNothing() // a managed service: no superuser owns it
	i.sql("revoke update on fence.resource from fence_owner; revoke execute on function fence.read_xid from fence_owner; revoke usage on schema fence from fence_owner")
	lacks := i.finds(cli.ExitNotReady, "role-lacks-rights")
	require.Equal(t, "role fence_owner lacks 3 rights: execute on read_xid, update on resource, usage on the schema", lacks.Seen)
	i.mend(lacks)
	i.own("postgres")
	i.sql("drop role auditor")
	i.findsTroubles()
	i.findsPatroni()
}

// own gives the schema and all its parts to a role.
func (i *installation) own(role string) {
	i.t.Helper()
	i.sql(`do $$ declare p text; begin
		for p in select 'alter schema fence' union all
		         select format('alter table fence.%I', relname) from pg_class where relnamespace = 'fence'::regnamespace and relkind in ('r', 'v') union all
		         select format('alter routine %s', oid::regprocedure) from pg_proc where pronamespace = 'fence'::regnamespace union all
		         select format('alter domain fence.%I', typname) from pg_type where typnamespace = 'fence'::regnamespace and typtype = 'd'
		loop execute p || ' owner to ` + role + `'; end loop; end $$`)
}

// The reader role sees all of a healthy installation. What the app role may not see is inconclusive, and
// the finding says which role may.
func (i *installation) rolesSee() {
	i.t.Helper()
	u, err := url.Parse(i.dsn)
	require.NoError(i.t, err)
	as := func(role string) (code int, found []doctor.Finding) {
		u.User = url.User(role)
		return examine(i.t, append(slices.Clone(i.flags[:4]), "--database-url", u.String())...)
	}
	code, found := as("auditor")
	require.Empty(i.t, found)
	require.Equal(i.t, cli.ExitOK, code)
	code, found = as("shop_1")
	require.Equal(i.t, cli.ExitInconclusive, code)
	require.GreaterOrEqual(i.t, len(found), 4)
	for _, f := range found {
		require.Equal(i.t, "not-checked", f.ID, "%+v", f)
		require.Contains(i.t, f.Fix, "Connect as the reader role ")
	}
}

func (i *installation) findsPatroni() {
	i.t.Helper()
	connect(i.t, with(i.t, i.dsn, "application_name", "Patroni"))
	require.Contains(i.t, i.finds(cli.ExitOK, "patroni-asynchronous").Run[0], "synchronous_mode=true")
}

func TestDoctor_MistakesAreUsageErrors(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"--ignore no-such":    `no finding has the ID "no-such"`,
		"--schema ":           "--schema is empty",
		"--etcd-prefix a/":    "ends in a slash",
		"--database-url \x00": "--database-url (FENCEKIT_DATABASE_URL) can't be understood",
		"--database-url postgres://me@h/shop --database-url postgres://you@h:5432/shop": "--database-url has h:5432/shop twice",
	} {
		got := fencectl(t, append([]string{"doctor"}, strings.Split(args, " ")...)...)
		require.Equal(t, cli.ExitUsage, got.Code, args)
		require.Contains(t, got.Stderr, says)
	}
}

func TestDoctor_EscapesWhatATerminalWouldObey(t *testing.T) {
	t.Parallel()
	got := fencectl(t, "doctor", "--database-url", "postgres://me@"+closedPort+"/shop%1B%5B2J")
	require.Equal(t, cli.ExitNotReady, got.Code)
	for _, text := range []string{got.Stdout, got.Stderr} {
		require.Contains(t, text, `shop\x1b[2J`)
		require.NotContains(t, text, "\x1b")
	}
}

// trouble is something wrong with an installation. The commands of its finding mend it.
type trouble struct {
	id   string
	code int
	make []string // SQL
	seen string   // in the finding
	also string   // further SQL, in place of what an operator decides, or of a restart
}

// findsTroubles makes each trouble for real. It is found with its fix, and gone once the commands of the
// finding have run.
func (i *installation) findsTroubles() {
	t := i.t
	t.Helper()
	const unprotected = "alter table fence.%[1]s disable trigger %[2]s; %[3]s; alter table fence.%[1]s enable always trigger %[2]s"
	const protected = "create schema shop; create table shop.stock (sku text primary key); select fence.protect_table('shop.stock', 'concat(''it''''s '', sku)', false)"
	for _, tr := range []trouble{
		{"tables-unlogged", cli.ExitViolated, []string{"alter table fence.resource set unlogged"}, "table resource is not logged", ""},
		{"triggers-changed", cli.ExitViolated, []string{"alter table fence.history disable trigger protect_history"}, "trigger protect_history of the table history is turned off", ""},
		{"triggers-changed", cli.ExitViolated, []string{"alter table fence.pending_write disable trigger pending_write_sealed"}, "trigger pending_write_sealed of the table pending_write is turned off: unguarded writes of protected tables could commit", ""},
		{"triggers-changed", cli.ExitViolated, []string{"drop trigger pending_write_sealed on fence.pending_write; create constraint trigger pending_write_sealed after insert on fence.pending_write for each row execute function fence.check_writes(); alter table fence.pending_write enable always trigger pending_write_sealed"}, "isn't as the migrations make it", ""},
		{"triggers-changed", cli.ExitViolated, []string{"alter table fence.setting enable trigger protect_epoch"}, "is on, unless session_replication_role is replica", ""},
		{"schema-changed", cli.ExitViolated, []string{"alter function fence.check_writes reset all"}, "function check_writes isn't as the migrations make it", ""},
		{"schema-changed", cli.ExitViolated, []string{"drop function fence.has_gap"}, "function has_gap is missing", ""},
		{"schema-changed", cli.ExitViolated, []string{"create function fence.claim_at(integer) returns bigint language sql as 'select 1::bigint'"}, "function claim_at isn't", "drop function fence.claim_at(integer)"},
		{"schema-changed", cli.ExitViolated, []string{"alter table fence.resource drop constraint resource_name_key; create unique index resource_name_key on fence.resource (name) where token > 200"}, "unique key resource_name_key of the table resource isn't", ""},
		{"schema-changed", cli.ExitViolated, []string{"create trigger \"a b\" before update on fence.resource for each row execute function suppress_redundant_updates_trigger()"}, "trigger a b of the table resource isn't Fencekit's", ""},
		{"schema-changed", cli.ExitViolated, []string{"alter table fence.resource enable row level security", "alter table fence.history enable row level security"}, ", and so is table ", ""},
		{"schema-changed", cli.ExitViolated, []string{"do $$ begin execute 'create or replace view fence.entry as ' || rtrim(pg_get_viewdef('fence.entry'), ';') || ' where c.token > 1'; end $$"}, "view entry isn't as the migrations make it", ""},
		{"schema-changed", cli.ExitViolated, []string{"create table more () inherits (fence.checkpoint)"}, "table checkpoint is a parent of public.more", "drop table more"},
		{"protection-broken", cli.ExitViolated, []string{protected, "alter table shop.stock disable trigger fencekit_protect"}, "table shop.stock, mode enforce: shop.stock lacks a trigger, or it is not enabled always", ""},
		{"protection-broken", cli.ExitViolated, []string{"do $$ begin execute format('drop function fence.protect_%s() cascade', (select id from fence.protection)); end $$"}, "the trigger function is gone", ""},
		{"protection-broken", cli.ExitViolated, []string{"alter table shop.stock rename to stock_old; create table shop.stock (like shop.stock_old including all)"}, "table shop.stock, mode enforce: the table was renamed, and another one, which is not protected, has its name", ""},
		{"protection-broken", cli.ExitViolated, []string{"drop table shop.stock; create table shop.stock (sku text primary key)"}, "the table is gone, and another one, which is not protected, has its name", ""},
		{"protection-left", cli.ExitOK, []string{"drop table shop.stock"}, "table shop.stock, mode enforce: the table is gone", ""},
		{"setting-missing", cli.ExitNotReady, []string{fmt.Sprintf(unprotected, "setting", "protect_fence", "delete from fence.setting")}, "fence.setting has 0 rows", ""},
		{"role-may-write", cli.ExitViolated, []string{"create role intern", "grant update on fence.resource to intern"}, "intern may write to resource", ""},
		{"role-may-write", cli.ExitViolated, []string{"grant execute on all functions in schema fence to public"}, "public may execute before_commit, begin_check, begin_one, ...", ""},
		{"role-may-write", cli.ExitViolated, []string{"alter role shop_1 superuser"}, "shop_1 is a superuser", ""},
		{"role-may-write", cli.ExitViolated, []string{"create role fencer; grant postgres to fencer; grant fencer to shop"}, "shop is a member of fencer", "drop role fencer"},
		{"role-may-write", cli.ExitViolated, []string{"create role loader login in role pg_write_all_data"}, "loader is a member of pg_write_all_data", "drop role loader"},
		{"role-may-write", cli.ExitViolated, []string{"create role stranger; alter schema fence owner to stranger"}, "stranger owns the schema", "drop role stranger"},
		{"role-may-write", cli.ExitViolated, []string{"create role stranger; alter domain fence.token owner to stranger; alter function fence.lost owner to stranger"}, "stranger owns lost, token", "drop role stranger"},

		{"role-lacks-rights", cli.ExitNotReady, []string{"revoke execute on function fence.read_xid from shop"}, "role shop lacks 1 right: execute on read_xid", ""},
		{"timeline-unknown", cli.ExitOK, []string{"update fence.setting set tells_timeline = false"}, "the server refuses pg_walfile_name", "update fence.setting set tells_timeline = true"},
		{"roles-cannot-evict", cli.ExitOK, []string{"create role shop_2 login in role shop; grant pg_signal_backend to shop_2"}, "role shop_1 may claim", "drop role shop_2"},
		{"role-limited", cli.ExitNotReady, []string{"alter role shop_1 set statement_timeout = '2ms'"}, "role shop_1 has a statement_timeout shorter than 100 ms", ""},
		{"role-limited", cli.ExitNotReady, []string{"alter role shop_1 in database shop set idle_in_transaction_session_timeout = 1"}, "role shop_1 in database shop has an idle_in_transaction_session_timeout shorter than 100 ms", ""},
		{"role-limited", cli.ExitNotReady, []string{"alter role shop_1 set idle_session_timeout = '999ms'"}, "role shop_1 has an idle_session_timeout shorter than 1 s", ""},
		{"role-limited", cli.ExitNotReady, []string{"alter system set idle_in_transaction_session_timeout = 99", "select pg_reload_conf()"}, "system has an idle_in_transaction_session_timeout shorter than 100 ms", ""},
		{"role-limited", cli.ExitNotReady, []string{"alter database shop set idle_in_transaction_session_timeout = 99"}, "database shop has an idle_in_transaction_session_timeout shorter than 100 ms", ""},
		{"role-limited", cli.ExitNotReady, []string{"alter role shop_1 connection limit 0"}, "role shop_1 has a connection limit of 0", ""},
		{"role-limited", cli.ExitNotReady, []string{"alter role shop_1 valid until '2020-01-01'"}, "role shop_1 has a password that expired", ""},
		{"role-limited", cli.ExitNotReady, []string{"alter role shop_1 nologin"}, "role shop_1 may not log in", ""},
		{"role-limited", cli.ExitNotReady, []string{"revoke connect on database shop from public"}, "role shop_1 may not connect to the database", "grant connect on database shop to public"},
		{"role-limited", cli.ExitNotReady, []string{"alter database shop connection limit 0"}, "database shop has a connection limit of 0", ""},
		{"schema-changed", cli.ExitViolated, []string{"alter domain fence.token drop constraint token_bounds"}, "constraint token_bounds of the domain token is missing", ""},
		{"schema-changed", cli.ExitViolated, []string{"alter domain fence.epoch drop constraint epoch_bounds; alter domain fence.epoch add constraint epoch_bounds check (value >= 0) not valid"}, "constraint epoch_bounds of the domain epoch isn't as the migrations make it", ""},
		{"schema-changed", cli.ExitViolated, []string{"alter table fence.history add constraint small check (seq < 1000)"}, "constraint small of the table history isn't Fencekit's", ""},
		{"schema-changed", cli.ExitViolated, []string{"create unique index one_each on fence.history (resource, kind, seq)"}, "unique key one_each of the table history isn't Fencekit's", ""},
		{"schema-changed", cli.ExitViolated, []string{"alter table fence.setting drop constraint setting_max_epoch_jump; update fence.setting set max_epoch_jump = 0"}, "constraint setting_max_epoch_jump of the table setting is missing", ""},
		{"schema-changed", cli.ExitViolated, []string{"alter table fence.setting drop constraint setting_history_keep; update fence.setting set history_keep = '1 second'"}, "constraint setting_history_keep of the table setting is missing", ""},
		{"once-retention-short", cli.ExitOK, []string{"update fence.setting set once_retention = '1 minute'"}, "once_retention is 00:01:00", ""},
		{"lock-session-endless", cli.ExitViolated, []string{"insert into fence.lock_session values (7, 'someone', 1, '2099-01-01')"}, "session 7 (\"someone\") is valid until 2099-01-01 00:00:00+00, and owns 0 locks", ""},
		{"sequence-unusable", cli.ExitNotReady, []string{"insert into fence.rejection overriding system value select 5, 'sku/1', 'stale', 'seal', 1, 1, 'h', 1, 2, 'i'"}, "table rejection: the next number is 1, the highest row has 5", ""},
		{"sequence-unusable", cli.ExitNotReady, []string{"select setval('fence.resource_id_seq', 2147483647)"}, "table resource: the next number is none, the highest row has ", ""},
		{"sequence-unusable", cli.ExitNotReady, []string{"alter sequence fence.lock_waiter_id_seq maxvalue 2; select setval('fence.lock_waiter_id_seq', 2)"}, "table lock_waiter: the next number is none, the highest row has 0", ""},
		{"replication-slot-idle", cli.ExitOK, []string{"alter system set max_wal_size = '32MB'", "select pg_reload_conf()", "select pg_create_physical_replication_slot('gone', true)", strings.Repeat("create table filler (); drop table filler; select pg_switch_wal(); ", 6)}, "physical slot gone keeps ", ""},
		{"schemas-share-names", cli.ExitOK, nil, "schemas fence and other have fences for sku/1", "drop schema other cascade"},
		{"once-keys-kept", cli.ExitOK, []string{"insert into fence.operation select id, 'k', sha256('x'), null, 0, now() - interval '9 days' from fence.resource where name = 'sku/1'"}, "older than the retention of 7 days", "delete from fence.operation"},
		{"synchronous-commit-off", cli.ExitOK, []string{"alter database shop set synchronous_commit = off"}, "synchronous_commit is off for database shop", ""},
		{"durability-off", cli.ExitViolated, []string{"alter system set full_page_writes = off", "select pg_reload_conf()"}, "full_page_writes is off", ""},
		{"synchronous-standby-missing", cli.ExitNotReady, []string{"alter system set synchronous_standby_names = 'gone'", "select pg_reload_conf()"}, "synchronous_standby_names is gone; connected are 0 standbys", ""},
	} {
		if tr.id == "schemas-share-names" {
			require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "up", "--database-url", i.dsn, "--schema", "other").Code)
			i.sql("insert into other.resource select * from fence.resource where name = 'sku/1'", "select setval('other.resource_id_seq', (select max(id) from other.resource))", "insert into other.history select * from fence.history where resource = (select id from other.resource)")
		}
		i.sql(tr.make...)
		found := i.finds(tr.code, tr.id)
		require.Contains(t, found.Seen, tr.seen)
		if strings.HasPrefix(tr.id, "protection-") {
			require.Equal(t, cli.ExitViolated, fencectl(t, "protected", "--database-url", i.dsn).Code)
		}
		if len(found.Run) > 0 {
			i.mend(found)
		}
		if tr.also != "" {
			i.sql(tr.also)
		}
		i.findsNothing()
	}
	i.write("sku/1", "sku/2", "sku/3")
	i.verifies()
}

func TestDoctor_TheExitCodeIsThatOfTheWorstFinding(t *testing.T) {
	t.Parallel()
	of := func(severities ...doctor.Severity) (found []doctor.Finding) {
		for _, s := range severities {
			found = append(found, doctor.Finding{Severity: s})
		}
		return found
	}
	require.Equal(t, cli.ExitOK, exitOf(nil))
	require.Equal(t, cli.ExitOK, exitOf(of(doctor.Warning)))
	require.Equal(t, cli.ExitInconclusive, exitOf(of(doctor.Warning, doctor.Inconclusive)))
	require.Equal(t, cli.ExitNotReady, exitOf(of(doctor.Inconclusive, doctor.NotReady)))
	require.Equal(t, cli.ExitViolated, exitOf(of(doctor.Inconclusive, doctor.NotReady, doctor.Violated)))
}

// The commands of findings reach the same locks. A user may be a secret too, as a token of NATS.
func TestDoctor_RepeatsWhereTheLocksAre(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"postgres": "postgres", "etcd": "etcd://127.0.0.1:2379", "etcd://h:1,h:2/": "etcd://h:1,h:2",
		"nats://s3cret@h:1?bucket=b": "'nats://h:1?bucket=b'",
	} {
		d := &doctorFlags{etcd: lockFlags{known: []LockService{{URL: "nats://HOST:PORT"}}}}
		cmd, root := connected(d, newCommand("doctor", nil)), newRoot()
		root.AddCommand(cmd)
		require.NoError(t, cmd.ParseFlags([]string{"--locks", at}))
		require.NoError(t, d.etcd.choose(cmd, true))
		require.Equal(t, "fencectl locks list --locks "+want, d.repeated(cmd, "fencectl locks list", ""))
		if d.etcd.url != nil {
			require.Equal(t, "at nats://h:1?bucket=b", urlLocks{url: d.etcd.url}.Place())
		}
	}
}
