package doctor

// Catalog lists all kinds, in the order of the checks.
var Catalog []Kind

func kind(k Kind) Kind {
	Catalog = append(Catalog, k)
	return k
}

const bump = "fencectl epoch bump --reason {reason}"

// Findings about the examination itself.
var (
	notChecked = kind(Kind{
		ID: "not-checked", Severity: Inconclusive,
		When: "a check failed: the role may not read what it needs, or a limit of the examination ended it",
		Why:  "What was not examined may be broken.",
		Fix:  "{advice}",
	})
)

// Findings about etcd.
var (
	etcdUnreachable = kind(Kind{
		ID: "etcd-unreachable", Severity: NotReady,
		When: "etcd gives no answer, or no majority of its members does",
		Why:  "No lock is granted; holders go on until their leases' deadlines.",
		Fix:  "Start or reconnect members until a majority runs; check --etcd-endpoints, user and certificates.",
	})
	etcdMemberSilent = kind(Kind{
		ID: "etcd-member-silent", Severity: Warning,
		When: "a member doesn't answer at an address in --etcd-endpoints, while others do",
		Why:  "One more failure may cost the majority; requests of clients that are connected to it wait until they give up.",
		Fix:  "Restart the member at {endpoint}. If it is gone for good, replace it (etcdctl member remove, etcdctl member add).",
	})
	etcdMemberUnseen = kind(Kind{
		ID: "etcd-member-unseen", Severity: Inconclusive,
		When: "a member is at none of --etcd-endpoints, and doesn't answer at the addresses that it advertises",
		Why:  "Nothing is known about it, and clients with the same endpoints never fail over to it.",
		Fix:  "Add the member's address to --etcd-endpoints and to the services' etcd clients, or start it.",
	})
	etcdVersion = kind(Kind{
		ID: "etcd-version", Severity: Warning,
		When: "a member runs a version before 3.5.23, or 3.6.0 to 3.6.4",
		Why:  "A leader of that version may revoke leases that were renewed, or renew leases that were revoked: locks are lost without a cause.",
		Fix:  "Upgrade etcd to 3.5.23, 3.6.5 or later.",
	})
	etcdFull = kind(Kind{
		ID: "etcd-full", Severity: NotReady,
		When: "the NOSPACE alarm is active",
		Why:  "No lock is granted; holders go on and release.",
		Fix:  "Make room: delete what fills etcd, if it isn't old revisions, then compact, defragment, and disarm the alarm.",
		Run: []string{
			"ETCDCTL_ENDPOINTS={endpoints} etcdctl compact {revision}",
			"ETCDCTL_ENDPOINTS={endpoints} etcdctl defrag",
			"ETCDCTL_ENDPOINTS={endpoints} etcdctl alarm disarm",
		},
	})
	etcdSpaceLow = kind(Kind{
		ID: "etcd-space-low", Severity: Warning,
		When: "a member's database has reached 80% of its quota, and the alarm is not active yet",
		Why:  "At the quota no lock is granted any more.",
		Fix:  "Compact and defragment now; set --auto-compaction-retention, or raise --quota-backend-bytes.",
		Run: []string{
			"ETCDCTL_ENDPOINTS={endpoints} etcdctl compact {revision}",
			"ETCDCTL_ENDPOINTS={endpoints} etcdctl defrag",
		},
	})
	etcdCorrupt = kind(Kind{
		ID: "etcd-corrupt", Severity: Violated,
		When: "the CORRUPT alarm is active",
		Why:  "Members disagree about the data, so that two holders may own one lock; the fences still protect the data.",
		Fix:  "Find the member that differs (etcdctl endpoint hashkv --cluster), replace it, then disarm the alarm.",
		Run:  []string{"ETCDCTL_ENDPOINTS={endpoints} etcdctl alarm disarm"},
	})
	etcdAuthOff = kind(Kind{
		ID: "etcd-auth-off", Severity: Warning,
		When: "etcd has no authentication, the connection has no client certificate, and an address of etcd is not on the loopback",
		Why:  "Any client on the network can delete locks and change the epoch.",
		Fix:  "Create users with the rights that go doc github.com/fencekit/fencekit/fence/etcd lists, then: etcdctl auth enable. Or require client certificates (--client-cert-auth).",
	})
	etcdDenied = kind(Kind{
		ID: "etcd-denied", Severity: Inconclusive,
		When: "the etcd user may not do what a locker does",
		Why:  "A service with this user gets no lock, and the checks of keys can't be made.",
		Fix:  "Examine with the services' own user, or give the user's role these rights.",
		Run: []string{
			"ETCDCTL_ENDPOINTS={endpoints} etcdctl role grant-permission ROLE readwrite --prefix=true {prefix}/locks/",
			"ETCDCTL_ENDPOINTS={endpoints} etcdctl role grant-permission ROLE readwrite --prefix=true {prefix}/void/",
			"ETCDCTL_ENDPOINTS={endpoints} etcdctl role grant-permission ROLE read {prefix}/epoch",
		},
	})
	etcdLimits = kind(Kind{
		ID: "etcd-limits-low", Severity: NotReady,
		When: "a request for one lock is beyond --max-txn-ops or --max-request-bytes",
		Why:  "No lock is granted.",
		Fix:  "Start etcd with --max-txn-ops=128 and --max-request-bytes=1572864, its defaults.",
	})
	etcdProxied = kind(Kind{
		ID: "etcd-proxied", Severity: Warning,
		When: "a proxy that answers in the members' place, as etcd's grpc-proxy, is at --etcd-endpoints",
		Why:  "Behind it a lease may end before its holder learns it, and a dead holder's lease may last twice as long; Check fails. Members behind it are not examined.",
		Fix:  "Give --etcd-endpoints and the services' etcd clients the addresses of the members.",
	})
	etcdTTLRaised = kind(Kind{
		ID: "etcd-ttl-raised", Severity: Warning,
		When: "etcd grants leases with a longer time to live than --ttl asks for",
		Why:  "The lock of a holder that died is free only after the longer time.",
		Fix:  "Set etcd.Config.TTL to {granted}, or lower etcd's --election-timeout: the shortest time to live is one and a half of it.",
	})
	lockWithoutLease = kind(Kind{
		ID: "lock-without-lease", Severity: Violated,
		When: "a lock key has no lease, because it was written by hand or by another program",
		Why:  "It never expires: its resource stays locked for good.",
		Fix:  "Find out who wrote it, and delete it.",
		Run:  []string{"ETCDCTL_ENDPOINTS={endpoints} etcdctl del {key}"},
	})
	voidWithoutLease = kind(Kind{
		ID: "void-without-lease", Severity: Warning,
		When: "a void key has no lease, because it was written by hand or by another program",
		Why:  "It never expires, and makes acquisitions of its session fail if it has one.",
		Fix:  "Delete it.",
		Run:  []string{"ETCDCTL_ENDPOINTS={endpoints} etcdctl del {key}"},
	})
	epochKeyInvalid = kind(Kind{
		ID: "epoch-key-invalid", Severity: NotReady,
		When: "the epoch key in etcd holds no epoch",
		Why:  "No lock is granted.",
		Fix:  "Let the databases say which epoch is next.",
		Run:  []string{bump + " --trust databases"},
	})
)

// Findings about the server of a database.
var (
	postgresUnreachable = kind(Kind{
		ID: "postgres-unreachable", Severity: NotReady,
		When: "the database gives no answer, or rejects the connection",
		Why:  "No guarded write works.",
		Fix:  "Start or reconnect Postgres; check --database-url, user and password.",
	})
	databaseMissing = kind(Kind{
		ID: "database-missing", Severity: NotReady,
		When: "the server has no database of this name",
		Why:  "No guarded write works.",
		Fix:  "Correct --database-url. If the name is right, make the database, connected to another one of the server, and then the schema.",
		Run:  []string{"create database {database};", "fencectl migrate up --schema {schema-word}"},
	})
	postgresVersion = kind(Kind{
		ID: "postgres-version", Severity: NotReady,
		When: "the server is older than PostgreSQL 14",
		Why:  "The functions of the protocol don't work there.",
		Fix:  "Upgrade to PostgreSQL 14 or later.",
	})
	postgresStandby = kind(Kind{
		ID: "postgres-standby", Severity: NotReady,
		When: "the server is a standby",
		Why:  "No claim and no guarded write works there.",
		Fix:  "Connect to the primary: list all servers in the URL and add target_session_attrs=read-write. To make this server the primary, if the old one is gone for good, run the statement.",
		Run:  []string{"select pg_promote();"},
	})
	poolerStatementMode = kind(Kind{
		ID: "pooler-statement-mode", Severity: NotReady,
		When: "a pooler in statement mode stands in between",
		Why:  "It has no transactions, so that every claim fails.",
		Fix:  "In PgBouncer's configuration set pool_mode = transaction, reload it, and put default_query_exec_mode=exec into the services' URLs.",
	})
	durabilityOff = kind(Kind{
		ID: "durability-off", Severity: Violated,
		When: "fsync or full_page_writes is off",
		Why:  "A crash of the machine may lose or damage everything that was acknowledged, fences included.",
		Fix:  "Turn both on.",
		Run:  []string{"alter system set fsync = on;", "alter system set full_page_writes = on;", "select pg_reload_conf();"},
	})
	synchronousCommitOff = kind(Kind{
		ID: "synchronous-commit-off", Severity: Warning,
		When: "synchronous_commit is off for the examined session, the database or a role",
		Why:  "Guarded transactions raise it to on for themselves, but a crash loses other transactions that were acknowledged.",
		Fix:  "Remove the setting unless it was chosen on purpose.",
		Run:  []string{"{statement};", "select pg_reload_conf();"},
	})
	preparedTransactions = kind(Kind{
		ID: "prepared-transactions", Severity: NotReady,
		When: "max_prepared_transactions is above 0",
		Why:  "A prepared transaction would escape eviction, so that claims fail unless postgres.Config.AllowPreparedTransactions is set.",
		Fix:  "Set it to 0 and restart the server. If no guarded code uses PREPARE TRANSACTION, set AllowPreparedTransactions and run fencectl doctor with --ignore prepared-transactions.",
		Run:  []string{"alter system set max_prepared_transactions = 0;"},
	})
	preparedTransactionOpen = kind(Kind{
		ID: "prepared-transaction-open", Severity: Violated,
		When: "a prepared transaction has locked a table of the schema for writing",
		Why:  "It may keep a fence locked until it is ended by hand, also across restarts.",
		Fix:  "In this database, as the role {owner}, which prepared it, or as a superuser, roll it back; or commit it if its transaction manager says so.",
		Run:  []string{"rollback prepared {gid};"},
	})
	transactionOpen = kind(Kind{
		ID: "transaction-open", Severity: Warning,
		When: "a transaction that is older than a minute has locked a table of the schema for writing",
		Why:  "It may keep a fence locked; guarded transactions end earlier, so it was opened by hand or by another program.",
		Fix:  "Find out whose it is, and end its session.",
		Run:  []string{"select pg_terminate_backend({pid}, 5000);"},
	})
	roleLimited = kind(Kind{
		ID: "role-limited", Severity: NotReady,
		When: "a role that may claim and log in, or the database, has a connection limit of 0, or a statement_timeout shorter than 100 ms",
		Why:  "Services with this role can't connect, or fail in their first statement, before Fencekit has set its own limits.",
		Fix:  "Remove the limit; new connections have the new value.",
		Run:  []string{"{statement};"},
	})
	timelineUnknown = kind(Kind{
		ID: "timeline-unknown", Severity: Warning,
		When: "the server doesn't tell its timeline, as Amazon Aurora",
		Why:  "A failover is noticed only if it lost a move of a fence.",
		Fix:  "Nothing, if the server keeps all that it has acknowledged. A PostgreSQL server that tells its timeline is noticed at the next check of a service.",
	})
	transactionTimeout = kind(Kind{
		ID: "transaction-timeout", Severity: Warning,
		When: "transaction_timeout (PostgreSQL 17) is shorter than 5 s",
		Why:  "Guarded transactions and claims that take longer end with a temporary error.",
		Fix:  "Raise it above the longest guarded transaction, or set it to 0.",
		Run:  []string{"alter system set transaction_timeout = 0;", "select pg_reload_conf();"},
	})
	lockTableFull = kind(Kind{
		ID: "lock-table-full", Severity: NotReady,
		When: "the server's table of locks has reached its capacity",
		Why:  "Any transaction may fail with out of shared memory, guarded ones too.",
		Fix:  "End the session that has the most locks, {holder}; then raise max_locks_per_transaction and restart the server.",
		Run:  []string{"select pg_terminate_backend({pid}, 5000);", "alter system set max_locks_per_transaction = {locks};"},
	})
	lockTableExhausted = kind(Kind{
		ID: "lock-table-exhausted", Severity: NotReady,
		When: "the server's table of locks has no room for a new connection",
		Why:  "No session can be begun, and transactions fail with out of shared memory.",
		Fix:  "End the program that takes so many locks. If it isn't known, restart the server, which ends all sessions; with a higher max_locks_per_transaction.",
		Run:  []string{"pg_ctl restart -m fast -D \"$PGDATA\""},
	})
	lockTableFilling = kind(Kind{
		ID: "lock-table-filling", Severity: Warning,
		When: "the server's table of locks is more than half full",
		Why:  "When it is full, any transaction may fail with out of shared memory.",
		Fix:  "Find out why {holder} has so many locks, or raise max_locks_per_transaction and restart the server.",
		Run:  []string{"alter system set max_locks_per_transaction = {locks};"},
	})
	standbyAsynchronous = kind(Kind{
		ID: "standby-asynchronous", Severity: Warning,
		When: "standbys stream from the server, and synchronous_standby_names is empty",
		Why:  "A failover to one of them loses what it had not received, acknowledged or not.",
		Fix:  "Make COMMIT wait for a standby; with a failover manager, by its own settings.",
		Run:  []string{"alter system set synchronous_standby_names = {names};", "select pg_reload_conf();"},
	})
	patroniAsynchronous = kind(Kind{
		ID: "patroni-asynchronous", Severity: Warning,
		When: "Patroni manages the server, and synchronous_standby_names is empty: its synchronous mode is off, or has given up because no standby was left",
		Why:  "A failover by Patroni loses what the new primary had not received, acknowledged or not.",
		Fix:  "Turn the synchronous mode on. With the strict one, writes wait while there is no standby.",
		Run:  []string{"patronictl edit-config --force -s synchronous_mode=true -s synchronous_mode_strict=true"},
	})
	synchronousStandbyMissing = kind(Kind{
		ID: "synchronous-standby-missing", Severity: NotReady,
		When: "synchronous_standby_names is set, and no synchronous standby is connected",
		Why:  "Each COMMIT waits until one is.",
		Fix:  "Start or reconnect a standby that the setting names. To give it up, and with it the protection of acknowledged writes, run the statements.",
		Run:  []string{"alter system set synchronous_standby_names = '';", "select pg_reload_conf();"},
	})
	databaseWentBack = kind(Kind{
		ID: "database-went-back", Severity: Violated,
		When: "a holder was rejected with the reason \"went back\" in the present epoch: the database no longer had what the holder had seen committed",
		Why:  "Acknowledged writes are lost, as after a restore from a backup or a failover to a standby that lacked the newest transactions.",
		Fix:  "Compare with other records what was lost after the last entries (fencectl tokens history {resource}), as docs/operate.md says. Use a synchronous standby. This finding stays until the epoch is raised.",
		Run:  []string{bump},
	})
)

// Findings about the schema.
var (
	notMigrated = kind(Kind{
		ID: "not-migrated", Severity: NotReady,
		When: "the schema is missing, or older than this fencectl",
		Why:  "Services of this version make no claim.",
		Fix:  "As the owner of the schema, bring it up to date; check --schema.",
		Run:  []string{"fencectl migrate up --schema {schema-word}"},
	})
	schemaRenamed = kind(Kind{
		ID: "schema-renamed", Severity: NotReady,
		When: "the schema was renamed after it was migrated",
		Why:  "Its functions still name the old schema, so they fail. Migrating the old name anew would begin with empty fences, which accept old tokens.",
		Fix:  "As the owner of the schema, give it its name back.",
		Run:  []string{"alter schema {is} rename to {was};"},
	})
	schemaNewer = kind(Kind{
		ID: "schema-newer", Severity: Inconclusive,
		When: "the schema is newer than this fencectl",
		Why:  "This fencectl doesn't know what the later migrations changed.",
		Fix:  "Use the fencectl of the services' version.",
	})
	tablesUnlogged = kind(Kind{
		ID: "tables-unlogged", Severity: Violated,
		When: "a table of the schema is unlogged",
		Why:  "A crash would empty it; without its fence a resource accepts old tokens.",
		Fix:  "As the owner of the schema, make it logged; it is rewritten under an exclusive lock.",
		Run:  []string{"alter table {table} set logged;"},
	})
	triggersChanged = kind(Kind{
		ID: "triggers-changed", Severity: Violated,
		When: "a trigger that protects fences, history or epoch, or that checks the seals of protected tables, is missing, was changed, or isn't enabled always",
		Why:  "Nothing stops a mistake by the owner, or a restore, from deleting fences and history; without the trigger pending_write_sealed unguarded writes of protected tables commit.",
		Fix:  "As the owner of the schema, restore it. What is wrong with the history now, fencectl audit verify says; who changed the trigger, only the server's log, if it has statements (log_statement = ddl).",
		Run:  []string{"{statement};", "alter table {table} enable always trigger {trigger};"},
	})
	schemaChanged = kind(Kind{
		ID: "schema-changed", Severity: Violated,
		When: "a function or a unique key isn't as the migrations make it, or a table has a trigger, a rule, row-level security or parts that they don't make",
		Why:  "The functions of the protocol may not do what they should, or statements not what they say.",
		Fix:  "As the owner of the schema, undo it; if a function isn't the only one of its name, drop the others. Then run fencectl audit verify to see what happened meanwhile.",
		Run:  []string{"{statement};"},
	})
	protectionBroken = kind(Kind{
		ID: "protection-broken", Severity: Violated,
		When: "a protected table lacks a trigger, as after a partition was added, or has one that is disabled or was changed; or another table, which isn't protected, has taken its name, as after a swap by ALTER TABLE RENAME",
		Why:  "Unguarded writes may commit there without being recorded. A new partition lacks only the trigger on TRUNCATE: rows are protected by the trigger that it gets from its parent.",
		Fix:  "As the owner of the schema and of the table, protect it again; if a column that the expression names was renamed, with the new name. What was written meanwhile, only the server's log says, if it has statements (log_statement = mod).",
		Run:  []string{"fencectl protect {table} --schema {schema-word} --resource {resource} --mode {mode}"},
	})
	protectionLeft = kind(Kind{
		ID: "protection-left", Severity: Warning,
		When: "a protected table was dropped, and no table has its name",
		Why:  "A table that is made again with this name isn't protected.",
		Fix:  "As the owner of the schema, remove the entry; or make the table, and protect it.",
		Run:  []string{"fencectl unprotect {table} --schema {schema-word}"},
	})
	settingMissing = kind(Kind{
		ID: "setting-missing", Severity: NotReady,
		When: "the row of the table setting is missing",
		Why:  "Every claim fails, and the highest epoch is forgotten.",
		Fix:  "As the owner of the schema, insert it again, then set your limits anew.",
		Run:  []string{"insert into {schema}.setting (epoch) select greatest(1, max(epoch)) from (select epoch from {schema}.resource union all select epoch from {schema}.epoch_raise) e;"},
	})
	roleMayWrite = kind(Kind{
		ID: "role-may-write", Severity: Violated,
		When: "a role other than the owner may write to a table or a view of the schema, may create functions there, or owns a part of it; or all roles may execute its functions",
		Why:  "It can move fences back and change the history, or let others do so without their knowledge.",
		Fix:  "As the owner of the schema, revoke it; services need no more than an app role has.",
		Run:  []string{"{statement};"},
	})
	roleLacksRights = kind(Kind{
		ID: "role-lacks-rights", Severity: NotReady,
		When: "a role may claim, and lacks other rights of an app role, as after a migration that added functions",
		Why:  "Guarded writes of services with this role fail.",
		Fix:  "As the owner of the schema, grant the role its rights again.",
		Run:  []string{"fencectl migrate up --schema {schema-word} --app-role {role-word}"},
	})
	rolesCannotEvict = kind(Kind{
		ID: "roles-cannot-evict", Severity: Warning,
		When: "two roles that can log in may claim, and one may not end the other's sessions",
		Why:  "The successor of a stopped holder can't evict it, and waits for the server's timeouts.",
		Fix:  "Let all holders log in as one role, or grant them pg_signal_backend.",
		Run:  []string{"grant pg_signal_backend to {role};"},
	})
	subscriptionOnFences = kind(Kind{
		ID: "subscription-on-fences", Severity: Violated,
		When: "a subscription writes to tables of the schema",
		Why:  "Fences that another server moves don't exclude other holders: a row lock is local to its server.",
		Fix:  "Stop it, and write to one primary only.",
		Run:  []string{"alter subscription {subscription} disable;", "alter subscription {subscription} set (slot_name = none);", "drop subscription {subscription};"},
	})
	subscriptionInDatabase = kind(Kind{
		ID: "subscription-in-database", Severity: Warning,
		When: "an enabled subscription writes to other tables of the database",
		Why:  "If guarded data is among them, it is written without a fence.",
		Fix:  "Make sure that no guarded table is among them, and run fencectl doctor with --ignore subscription-in-database; else drop the table from the publication.",
	})
	schemasShareNames = kind(Kind{
		ID: "schemas-share-names", Severity: Warning,
		When: "two schemas of the database have fences for the same resource",
		Why:  "Two processes that guard the same data with different schemas don't exclude each other.",
		Fix:  "Set the same postgres.Config.Schema in all processes that guard the same data. If the other schema is of another application whose resources have the same names, ignore this finding (--ignore schemas-share-names).",
	})
	shardsDisagree = kind(Kind{
		ID: "shards-disagree", Severity: NotReady,
		When: "two of the databases say that they are the same shard, or shards of another number of databases or another rule, or only one of them is a shard at all",
		Why:  "A process that has both in its list of databases gets no claim in one of them; processes with different lists write a resource's rows to different databases.",
		Fix:  "Find out which list each process has, and which shard's rows each database holds; docs/sharding.md has the steps that change the list. Databases that don't belong together are to be examined one by one.",
	})
	historyLarge = kind(Kind{
		ID: "history-large", Severity: Warning,
		When: "the history takes more than 10 GB, and no policy says how long entries are kept",
		Why:  "It grows with each guarded write until the disk is full.",
		Fix:  "Set a policy, and let the services prune (fencekit.Config.PruneEvery) or cron (fencectl history prune).",
		Run:  []string{"fencectl history policy --schema {schema-word} --keep 90d"},
	})
	onceKeysKept = kind(Kind{
		ID: "once-keys-kept", Severity: Warning,
		When: "keys of guard.Once are kept for a day longer than the retention",
		Why:  "Nothing prunes, or too seldom: the table grows.",
		Fix:  "Prune at least four times within the retention: set fencekit.Config.PruneEvery, or run fencectl history prune from cron. The first keys go when prunes have run for all of the retention.",
	})
)

// Findings about the fences.
var (
	fenceDeleted = kind(Kind{
		ID: "fence-deleted", Severity: Violated,
		When: "a resource has a history and no fence",
		Why:  "Only its history keeps old tokens out, and prunes and verification stop there.",
		Fix:  "Claim the resource: the claim rebuilds the fence from its history, and the database doesn't tell afterwards that it was gone. Who deleted it, only the server's log says, if it has statements (log_statement = mod).",
		Run:  []string{"fencectl exec {resource} --claim -- true"},
	})
	fenceBehindHistory = kind(Kind{
		ID: "fence-behind-history", Severity: Violated,
		When: "a fence is at an earlier position than the last entry of its history",
		Why:  "Its next position is taken: every claim and every guarded write of the resource fails.",
		Fix:  "As the owner of the schema, move such fences to the end of their histories. Then find out what else was put back: the data may be older than the history.",
		Run:  []string{"select {schema}.repair();"},
	})
	fenceChanged = kind(Kind{
		ID: "fence-changed", Severity: Violated,
		When: "a fence isn't as its last entry left it: its token, holder or hash was changed by hand",
		Why:  "With a lower token it would admit a holder that was superseded; with another transaction or hash it rejects the present one.",
		Fix:  "See what the history says (fencectl audit verify), and keep both as evidence. Then, as the owner of the schema, put such fences back to the end of their histories; one whose token was raised stays, and takes fencectl epoch bump.",
		Run:  []string{"select {schema}.repair();"},
	})
	historyMissing = kind(Kind{
		ID: "history-missing", Severity: Violated,
		When: "entries of the history are missing that no prune deleted: the last one, the first one, the claim of the present grant, or, in a history of up to 2,000,000 entries, any other",
		Why:  "What was done under the lock can't be shown any more, and the outcome of COMMITs in doubt can't be resolved.",
		Fix:  "Keep the database as evidence; fencectl audit verify says what is missing. Restore a backup from just before the loss into another database, BACKUP_URL, and copy the entries from there; entries that are present stay.",
		Run:  []string{"pg_dump --data-only --table='{schema}.history' --inserts --on-conflict-do-nothing \"$BACKUP_URL\" | psql \"$DATABASE_URL\""},
	})
)

// Findings about etcd and a database together.
var (
	epochBehind = kind(Kind{
		ID: "epoch-behind", Severity: NotReady,
		When: "the database has seen a higher epoch than etcd's",
		Why:  "Every claim is rejected (\"epoch behind\"): etcd was restored, or is another one.",
		Fix:  "Check --etcd-endpoints and --etcd-prefix. If they are right, raise the epoch.",
		Run:  []string{bump},
	})
	epochJump = kind(Kind{
		ID: "epoch-jump", Severity: NotReady,
		When: "etcd's epoch is further above the database's than max_epoch_jump",
		Why:  "Every claim is rejected (\"token jump\"): the epoch was mistyped, or another database was meant.",
		Fix:  "If it was mistyped, let the databases say which epoch is next. If it is right, let them follow: --trust etcd.",
		Run:  []string{bump + " --trust databases"},
	})
	etcdWentBack = kind(Kind{
		ID: "etcd-went-back", Severity: Violated,
		When: "a fence's token is above etcd's revision, in etcd's epoch",
		Why:  "etcd was restored from a backup, or is another one: it issues tokens a second time, and those below the fence are rejected.",
		Fix:  "Check --etcd-endpoints and --etcd-prefix. If they are right, raise the epoch.",
		Run:  []string{bump},
	})
	fenceTokenAbsurd = kind(Kind{
		ID: "fence-token-absurd", Severity: Violated,
		When: "a fence's token is above etcd's revision by more than 2^30, in etcd's epoch",
		Why:  "A forged or mistaken grant has claimed it; every real token is rejected there for as long as etcd counts up to it.",
		Fix:  "See what the false grant wrote, and when (fencectl tokens history {resource}). The holder is a name that the claimer chose; who that was, only the server's log may say. Then raise the epoch, which orders real grants after the false one.",
		Run:  []string{bump},
	})
	fenceCollision = kind(Kind{
		ID: "fence-collision", Severity: Violated,
		When: "a lock's holder in etcd and its fence have the same token, and different holders",
		Why:  "Two etcds, or a restored one, have issued the token twice; one of the holders is rejected.",
		Fix:  "Raise the epoch.",
		Run:  []string{bump},
	})
)
