package mutants

const etcd = "fence/etcd/"

// inEtcd is a test of the lock service.
func inEtcd(name string) Test { return Test{"fence/etcd", name} }

// etcdMutants are in keys, and in the Txns that acquire and give back.
var etcdMutants = []Mutant{
	change("name-is-a-key-as-it-is", "HD15", etcd+"keys.go",
		`url.PathEscape(resource) + "/"`, `resource + "/" + url.PathEscape("")`,
		inEtcd("TestAcquire_NamesDontBlockEachOther_HD15")),
	change("one-key-for-all-goroutines-at-once", "F2 N8", etcd+"keys.go",
		`return fmt.Sprintf("%s%x-%s", k.queue(resource), int64(id), nonce)`, `return fmt.Sprintf("%s%x", k.queue(resource), int64(id))`,
		inEtcd("TestAcquire_GoroutinesExcludeEachOther_F2_N8")).and(goroutinesAtOnce...),
	change("holder-is-the-label", "F2", etcd+"keys.go",
		`return label + "-" + nonce`, `return label + "-" + nonce[:0]`,
		inEtcd("TestAcquire_GoroutinesExcludeEachOther_F2_N8")),

	change("acquire-is-first-whoever-is-ahead", "F2", etcd+"txns.go",
		`first := string(firsts[0].Key) == p.key`, `first := true`,
		inEtcd("TestAcquire_ServesLockersInOrderOfArrival")),
	change("acquire-sent-twice-has-the-second-revision", "F1", etcd+"txns.go",
		`clientv3.Compare(clientv3.CreateRevision(p.key), "=", 0),`, ``,
		inEtcd("TestUnknown_AnAcquireThatIsSentTwiceGetsNoWrongToken_F1")),
	change("acquire-that-arrives-late-takes-effect", "HD12", etcd+"txns.go",
		"\t\tl.notVoid(p),\n", "",
		inEtcd("TestUnknown_AnAcquireThatArrivesLateTakesNoEffect_HD12")),
	change("acquire-in-an-epoch-that-is-over", "F1 HD5", etcd+"txns.go",
		"\t\te.unchanged(epochKey),\n", "",
		inEtcd("TestEpoch_IsReadByEveryAcquire")),
	change("acquire-without-a-lease", "F2 HD8", etcd+"txns.go",
		`clientv3.OpPut(p.key, value, clientv3.WithLease(p.session.id))`, `clientv3.OpPut(p.key, value)`,
		inEtcd("TestClose_WithAnEndedContextFreesEverything")),
	change("try-queues-behind-who-came-between", "F2", etcd+"txns.go",
		"if try {\n\t\t// No key", "if false {\n\t\t// No key",
		inEtcd("TestTryAcquire_DoesNotQueueWhenSomebodyComesBetween")),
	change("try-writes-without-looking", "F2", etcd+"acquire.go",
		"if try {\n\t\tif err := l.look", "if false {\n\t\tif err := l.look",
		inEtcd("TestTryAcquire_NamesTheHolderAndWritesNothing")).
		survives("the Txn that would write looks again (try-queues-behind-who-came-between); the look spares raft a request"),
	change("turn-after-the-deadline-is-a-grant", "F3", etcd+"acquire.go",
		`if p.session.remaining() == 0 {`, `if false {`,
		inEtcd("TestAwait_ATurnAfterTheDeadlineIsNoGrant_F3")),
	change("turn-of-what-was-lost-is-a-grant", "F2 F3", etcd+"acquire.go",
		"if p.ctx.Err() != nil {\n\t\treturn l.lost(p)\n\t}\n\treturn nil", "return nil",
		inEtcd("TestAwait_PrefersTheLossToTheTurn")),
	change("waiters-go-by-the-watch-alone", "L1 HD10", etcd+"acquire.go",
		`l.tasks.start(func(context.Context) { l.poll(polling, &p.followed) })`, `_ = polling`,
		inEtcd("TestWatch_AWaiterGetsItsTurnWithoutOne_HD10")),
	change("waiters-that-leave-keep-their-key", "F2 L1", etcd+"acquire.go",
		"l.abandon(p, l.erase)\n\t\treturn nil, err", "l.abandon(p, nil)\n\t\treturn nil, err",
		inEtcd("TestPause_ACancelledWaiterReturnsAndLeavesNothing_N8")),
	change("acquire-in-doubt-is-taken-for-nothing", "F2 HD12", etcd+"acquire.go",
		`l.abandon(p, l.void)`, `l.abandon(p, nil)`,
		inEtcd("TestUnknown_AnAcquireWhoseAnswerIsLostLeavesNothing_HD12")),

	change("release-by-name", "F2 N8", etcd+"txns.go",
		"\n\t\tIf(clientv3.Compare(clientv3.CreateRevision(p.key), \"=\", int64(p.granted().Token))).", "",
		inEtcd("TestRelease_NeverDeletesByNameAlone_F2_N8")),
	change("release-in-doubt-is-taken-for-done", "F2", etcd+"release.go",
		`if err := l.erase(try, p); err == nil {`, `if err := l.erase(try, p); err == nil || true {`,
		inEtcd("TestPause_AcquireAndReleaseReturnWhenTheirContextEnds")),
	change("what-is-in-doubt-is-kept-alive", "L1 HD12", etcd+"release.go",
		"\t\tp.session.giveUp()\n", "",
		inEtcd("TestUnknown_GivesTheSessionUpWhenNothingElseIsHeld_HD12")),
	change("next-acquisition-does-not-wait-for-the-doubt", "F2 HD12", etcd+"release.go",
		`p.session.abandon(p)
	l.watch.remove(&p.followed)
	l.tasks.start(`, `p.settle(true)
	l.watch.remove(&p.followed)
	l.tasks.start(`,
		inEtcd("TestPause_ACancelledWaiterReturnsAndLeavesNothing_N8")),
	change("void-leaves-the-key", "F2 HD12", etcd+"txns.go",
		"\t\tclientv3.OpDelete(p.key),\n\t).Else(", "\t).Else(",
		inEtcd("TestUnknown_AnAcquireWhoseAnswerIsLostLeavesNothing_HD12")),
	change("void-deletes-the-next-key-of-the-name", "F2 HD12", etcd+"txns.go",
		`l.client.Txn(ctx).If(l.notVoid(p)).Then(`, `l.client.Txn(ctx).Then(`,
		inEtcd("TestMutexKeys_LateRequestsLeaveTheNextAcquisitionAlone_F2_HD12")),
	change("withdrawal-deletes-the-next-key-of-the-name", "F2 HD7", etcd+"txns.go",
		"Then(clientv3.OpDelete(p.key)))\n\treturn err\n}\n\n// notVoid", "Then(clientv3.OpDelete(p.key)).Else(clientv3.OpDelete(p.key)))\n\treturn err\n}\n\n// notVoid",
		inEtcd("TestNoSpace_AWithdrawalThatArrivesLateSparesTheNextKey_HD7")),
	change("turn-that-comes-too-late-is-lost", "L1", etcd+"localqueue.go",
		"\tq.mu.Unlock()\n\tq.leave(resource)\n", "\tq.mu.Unlock()\n",
		inEtcd("TestLocalQueue_ATurnThatComesTooLateIsPassedOn")),
	change("local-waiters-are-not-contention", "L1", etcd+"lease.go",
		`contended || l.locker.local.waited(l.resource) || `, `contended || `,
		inEtcd("TestAfterContended_CountsTheLocalQueue")),
	change("waiters-from-before-the-grant-are-not-contention", "L1", etcd+"lease.go",
		`contended := l.place.contended()`, `contended := false`,
		inEtcd("TestAfterContended_SeesAWaiterWhoCameBeforeTheGrant")),

	change("proclaim-that-arrives-late-takes-effect", "HD12", etcd+"election_leadership.go",
		`clientv3.Compare(clientv3.ModRevision(p.key), "=", left),`, `clientv3.Compare(clientv3.ModRevision(p.key), ">", left-left),`,
		inEtcd("TestProclaim_ThatArrivesLateTakesNoEffect_HD12")),
	change("proclaim-of-a-deposed-leader", "F2", etcd+"election_leadership.go",
		`if kv == nil || kv.CreateRevision != int64(p.granted().Token) {`, `if kv == nil {`,
		inEtcd("TestProclaim_OfADeposedLeaderIsRefused_F2")),
}

// goroutinesAtOnce lets the acquisitions of one process go to etcd side by side.
var goroutinesAtOnce = []Edit{
	{etcd + "localqueue.go", `if t == nil {
		q.turns[resource] = &turns{}
		q.mu.Unlock()
		return nil
	}`, `if t == nil || true {
		q.turns[resource] = &turns{}
		q.mu.Unlock()
		return nil
	}`},
	{etcd + "localqueue.go", `if len(t.waiting) == 0 {
		delete`, `if t == nil || len(t.waiting) == 0 {
		delete`},
	{etcd + "localqueue.go", `q.turns[resource].place = p`, `q.turns[resource] = &turns{place: p}`},
	{etcd + "txns.go", "clientv3.Compare(clientv3.CreateRevision(p.key), \"=\", 0),\n", ""},
}
