package mutants

// keysMutants are in what keeps the number of keys, and of requests about them, small.
var keysMutants = []Mutant{
	change("void-keys-of-a-session-add-up", "HD12", etcd+"internal/queue/transactions.go",
		"\t\tclientv3.OpDelete(q.cluster.Keys.Voids(p.session.ID), clientv3.WithRange(key)),\n", "",
		inEtcds("queue", "TestUnknown_ThousandsOfAcquiresInDoubtLeaveOneKey_HD12")),
	change("void-outlives-its-session", "HD12", etcd+"internal/queue/transactions.go",
		`clientv3.OpPut(key, p.key, clientv3.WithLease(p.session.ID))`, `clientv3.OpPut(key, p.key)`,
		inEtcd("TestUnknown_AnAcquireWhoseAnswerIsLostLeavesNothing_HD12")),
	change("void-rules-out-one-acquire-alone", "F2 HD12", etcd+"internal/queue/transactions.go",
		`q.cluster.Keys.Void(p.session.ID, p.number)), "=", 0).WithRange(q.endOfVoids(p))`, `q.cluster.Keys.Void(p.session.ID, p.number)), "=", 0)`,
		inEtcds("queue", "TestUnknown_AnAcquireThatALaterVoidOvertookIsSentAgain_HD12")),
	change("acquire-that-was-overtaken-keeps-its-number", "L1 HD12", etcd+"internal/queue/acquire.go",
		`p.number = p.session.NextNumber()`, `p.number = max(p.number, 1)`,
		inEtcds("queue", "TestUnknown_AnAcquireThatALaterVoidOvertookIsSentAgain_HD12")),
	change("void-that-was-overtaken-leaves-its-key", "L1 HD12", etcd+"internal/queue/transactions.go",
		`if err != nil || resp.Succeeded {`, `if err != nil || true {`,
		inEtcds("queue", "TestUnknown_AVoidThatALaterOneOvertookDeletesItsKey_HD12")),
	change("void-sent-twice-deletes-the-next-key-of-the-name", "F2 HD12", etcd+"internal/queue/transactions.go",
		`).Else(clientv3.OpGet(p.key)))
	if err != nil || resp.Succeeded {`, `).Else(clientv3.OpDelete(p.key)))
	if err != nil || true {`,
		inEtcd("TestMutexKeys_LateRequestsLeaveTheNextAcquisitionAlone_F2_HD12")),
	change("thousands-are-cleared-away-at-once", "L1", etcd+"internal/queue/queues.go",
		`make(chan struct{}, maxClearing)`, `make(chan struct{}, 1<<20)`,
		inEtcds("queue", "TestUnknown_ThousandsOfAcquiresInDoubtLeaveOneKey_HD12")),
	change("thousands-that-expire-are-released-at-once", "L1", "guard/expire.go",
		`more := k.expiring < maxExpiryReleases`, `more := k.expiring >= 0`,
		Test{"guard", "TestKeepFor_ThousandsThatExpireTogetherAreReleasedAFewAtATime_L1"}),

	change("raised-epoch-fails-the-calls-that-wait", "L1 HD5", "guard/guard_runner.go",
		`if rejection == nil || rejection.Reason != storage.ReasonEpochBehind || `, `if true || rejection.Reason != storage.ReasonEpochBehind || `,
		Test{"test/e2e", "TestEpoch_RaisedWhileCallsWaitIsTakenByThem_L1"}),
	change("epoch-that-is-put-right-went-back", "L1", etcd+"internal/cluster/watermark.go",
		`case e.Number < sent.Epoch.Number && e.Revision <= sent.Epoch.Revision:`, `case e.Number < sent.Epoch.Number:`,
		inEtcds("cluster", "TestWatermark_DistinguishesACorrectedMistakeFromAnOlderState_HD5")),
	change("epoch-of-an-older-state-is-put-right", "F1 HD5", etcd+"internal/cluster/watermark.go",
		`case e.Number < sent.Epoch.Number && e.Revision <= sent.Epoch.Revision:`, `case e.Number < sent.Epoch.Number && e.Revision < 0:`,
		inEtcds("cluster", "TestWatermark_DistinguishesACorrectedMistakeFromAnOlderState_HD5")),
	change("use-of-a-longer-name-starves-the-shorter", "L1", etcd+"internal/queue/contention.go",
		` || p.queues.cluster.Keys.HidesWaiters(p.resource)`, ``,
		inEtcd("TestMutexKeys_ALongerNameCountsAsContended_L1")),
}
