package mutants

const etcd = "fence/etcd/"

// inEtcd is a test of the lock service.
func inEtcd(name string) Test { return Test{"fence/etcd", name} }

// inEtcds is a test of one of its internal packages.
func inEtcds(pkg, name string) Test { return Test{etcd + "internal/" + pkg, name} }

// etcdMutants are in keys, and in the Txns that acquire and give back.
var etcdMutants = []Mutant{
	change("name-is-a-key-as-it-is", "HD15", etcd+"internal/keys/keys.go",
		`url.PathEscape(resource) + "/"`, `resource + "/" + url.PathEscape("")`,
		inEtcd("TestAcquire_NamesDontBlockEachOther_HD15")),
	change("one-key-for-all-goroutines-at-once", "F2 N8", etcd+"internal/keys/keys.go",
		`return key + "-" + strconv.FormatInt(number, 10)`, `return key`,
		inEtcd("TestAcquire_GoroutinesExcludeEachOther_F2_N8")).and(goroutinesAtOnce...),
	change("holder-is-the-label", "F2", etcd+"internal/keys/keys.go",
		`return label + "-" + rand.Text()`, `return label + "-" + rand.Text()[:0]`,
		inEtcd("TestAcquire_GoroutinesExcludeEachOther_F2_N8")),

	change("acquire-is-first-behind-another-key", "F2", etcd+"internal/queue/transactions.go",
		`o.owner, o.first = kv, string(kv.Key) == p.key`, `o.owner, o.first = kv, true`,
		inEtcd("TestAcquire_ServesLockersInOrderOfArrival")),
	change("acquire-sent-twice-has-the-second-revision", "F1", etcd+"internal/queue/transactions.go",
		`already != nil {`, `already != nil && o.token == 0 {`,
		inEtcd("TestUnknown_AnAcquireThatIsSentTwiceGetsNoWrongToken_F1")),
	change("try-that-is-sent-twice-is-taken-for-a-refusal", "F2", etcd+"internal/queue/transactions.go",
		`if o.first && !o.written {`, `if false {`,
		inEtcd("TestUnknown_AnAcquireThatIsSentTwiceGetsNoWrongToken_F1")),
	change("acquire-that-arrives-late-takes-effect", "HD12", etcd+"internal/queue/transactions.go",
		`, q.notVoid(p.session, sent)}`, `}`,
		inEtcd("TestUnknown_AnAcquireThatArrivesLateTakesNoEffect_HD12")),
	change("acquire-in-an-epoch-that-is-over", "F1 HD5", etcd+"internal/queue/transactions.go",
		`sent.Epoch.Unchanged(q.cluster.Keys.Epoch()), q.notVoid`, `q.notVoid`,
		inEtcd("TestEpoch_IsReadByEveryAcquire")),
	change("acquire-without-a-lease", "F2 HD8", etcd+"internal/queue/transactions.go",
		`clientv3.OpPut(p.key, value, clientv3.WithLease(p.session.ID), `, `clientv3.OpPut(p.key, value, `,
		inEtcd("TestClose_WithAnEndedContextFreesEverything")),
	change("try-queues-behind-another-key", "F2", etcd+"internal/queue/transactions.go",
		"if try {\n\t\t// No existing key", "if false {\n\t\t// No key",
		inEtcds("queue", "TestTryAcquire_DoesNotQueueWhenAnotherComesBetween")),
	change("try-writes-without-looking", "F2", etcd+"internal/queue/acquire.go",
		"if try {\n\t\tif err := q.checkFree", "if false {\n\t\tif err := q.checkFree",
		inEtcd("TestTryAcquire_NamesTheHolderAndWritesNothing")).
		survives("the Txn that would write looks again (try-queues-behind-another-key); the look spares raft a request"),
	change("turn-after-the-deadline-is-a-grant", "F3", etcd+"internal/queue/acquire.go",
		`if p.session.Remaining() == 0 {`, `if false {`,
		inEtcds("queue", "TestAwait_ATurnAfterTheDeadlineIsNoGrant_F3")),
	change("turn-of-what-was-lost-is-a-grant", "F2 F3", etcd+"internal/queue/acquire.go",
		"if p.ctx.Err() != nil {\n\t\treturn q.lost(p)\n\t}\n\treturn nil", "return nil",
		inEtcds("queue", "TestAwait_PrefersTheLossToTheTurn")),
	change("waiters-go-by-the-watch-alone", "L1 HD10", etcd+"internal/queue/acquire.go",
		`q.cluster.Tasks.Start(func(context.Context) { q.watcher.Poll(polling, p.follower) })`, `_ = polling`,
		inEtcd("TestWatch_AWaiterGetsItsTurnWithoutOne_HD10")),
	change("waiters-that-leave-keep-their-key", "F2 L1", etcd+"internal/queue/acquire.go",
		"q.abandon(p, q.erase)\n\t\treturn nil, err", "q.abandon(p, nil)\n\t\treturn nil, err",
		inEtcd("TestPause_ACancelledWaiterReturnsAndLeavesNothing_N8")),
	change("acquire-in-doubt-is-taken-for-nothing", "F2 HD12", etcd+"internal/queue/acquire.go",
		`q.abandon(p, q.void)`, `q.abandon(p, nil)`,
		inEtcd("TestUnknown_AnAcquireWhoseAnswerIsLostLeavesNothing_HD12")),

	change("release-by-name", "F2 N8", etcd+"internal/queue/transactions.go",
		"if q.cluster.Keys.Mutex {\n\t\ttxn = txn.If(", "if false {\n\t\ttxn = txn.If(",
		inEtcds("queue", "TestRelease_NeverDeletesByNameAlone_F2_N8")),
	change("release-in-doubt-is-taken-for-done", "F2", etcd+"internal/queue/release.go",
		`if err := q.erase(try, p); err == nil {`, `if err := q.erase(try, p); err == nil || true {`,
		inEtcd("TestPause_AcquireAndReleaseReturnWhenTheirContextEnds")),
	change("what-is-in-doubt-is-kept-alive", "L1 HD12", etcd+"internal/queue/release.go",
		"\t\tp.session.EndIfUnneeded()\n", "",
		inEtcd("TestUnknown_GivesTheSessionUpWhenNothingElseIsHeld_HD12")),
	change("next-acquisition-does-not-wait-for-the-doubt", "F2 HD12", etcd+"internal/queue/release.go",
		`p.session.Abandon(p)
	q.watcher.Remove(p.follower)
	q.cluster.Tasks.Start(`, `p.settle(true)
	q.watcher.Remove(p.follower)
	q.cluster.Tasks.Start(`,
		inEtcd("TestPause_ACancelledWaiterReturnsAndLeavesNothing_N8")),
	change("void-leaves-the-key", "F2 HD12", etcd+"internal/queue/transactions.go",
		"\t\tclientv3.OpDelete(p.key),\n\t).Else(", "\t).Else(",
		inEtcd("TestUnknown_AnAcquireWhoseAnswerIsLostLeavesNothing_HD12")),
	change("void-deletes-the-next-key-of-the-name", "F2 HD12", etcd+"internal/queue/transactions.go",
		`.If(q.notVoid(p.session, q.cluster.Sending())).Then(`, `.Then(`,
		inEtcd("TestMutexKeys_LateRequestsLeaveTheNextAcquisitionAlone_F2_HD12")),
	change("withdrawal-deletes-the-next-key-of-the-name", "F2 HD7", etcd+"internal/queue/transactions.go",
		".If(never).Then(clientv3.OpDelete(p.key)).Else(clientv3.OpGet(p.key)))\n\tif err != nil {", ".If(never).Then(clientv3.OpDelete(p.key)).Else(clientv3.OpDelete(p.key)))\n\tif err != nil || resp != nil {",
		inEtcds("queue", "TestNoSpace_AWithdrawalThatArrivesLateSparesTheNextKey_HD7")),
	change("turn-that-comes-too-late-is-lost", "L1", etcd+"internal/queue/local_queue.go",
		"\tq.mu.Unlock()\n\tq.passOn(resource)\n", "\tq.mu.Unlock()\n",
		inEtcds("queue", "TestLocalQueue_ATurnThatComesTooLateIsPassedOn")),
	change("local-waiters-are-not-contention", "L1", etcd+"internal/queue/contention.go",
		`contended || p.queues.local.waited(p.resource) || `, `contended || `,
		inEtcd("TestAfterContended_CountsTheLocalQueue")),
	change("waiters-from-before-the-grant-are-not-contention", "L1", etcd+"internal/queue/contention.go",
		`contended := p.contended()`, `contended := false`,
		inEtcd("TestAfterContended_SeesAWaiterThatCameBeforeTheGrant")),

	change("proclaim-that-arrives-late-takes-effect", "HD12", etcd+"internal/queue/leadership.go",
		`clientv3.Compare(clientv3.ModRevision(p.key), "=", left),`, `clientv3.Compare(clientv3.ModRevision(p.key), ">", left-left),`,
		inEtcd("TestProclaim_ThatArrivesLateTakesNoEffect_HD12")),
	change("proclaim-of-a-deposed-leader", "F2", etcd+"internal/queue/leadership.go",
		`if kv == nil || kv.CreateRevision != int64(p.granted().Token) {`, `if kv == nil {`,
		inEtcd("TestProclaim_OfADeposedLeaderIsRejected_F2")),
}

// goroutinesAtOnce lets the acquisitions of one process go to etcd side by side.
var goroutinesAtOnce = []Edit{
	{etcd + "internal/queue/local_queue.go", `if t == nil {
		q.turns[resource] = &turns{}
		q.mu.Unlock()
		return nil
	}`, `if t == nil || true {
		q.turns[resource] = &turns{}
		q.mu.Unlock()
		return nil
	}`},
	{etcd + "internal/queue/local_queue.go", `if len(t.waiting) == 0 {
		delete`, `if t == nil || len(t.waiting) == 0 {
		delete`},
	{etcd + "internal/queue/local_queue.go", `q.turns[resource].position = p`, `q.turns[resource] = &turns{position: p}`},
}
