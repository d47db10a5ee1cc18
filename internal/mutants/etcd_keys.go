package mutants

// keysMutants are in what keeps the number of keys, and of requests about them, small.
var keysMutants = []Mutant{
	change("void-outlives-its-session", "HD12", etcd+"internal/queue/transactions.go",
		`clientv3.OpPut(q.cluster.Keys.Void(p.session.ID), "", clientv3.WithLease(p.session.ID))`, `clientv3.OpPut(q.cluster.Keys.Void(p.session.ID), "")`,
		inEtcd("TestUnknown_AnAcquireWhoseAnswerIsLostLeavesNothing_HD12")),
	change("first-void-of-a-session-is-the-only-one", "F2 HD12", etcd+"internal/queue/transactions.go",
		`clientv3.ModRevision(q.cluster.Keys.Void(s.ID))`, `clientv3.CreateRevision(q.cluster.Keys.Void(s.ID))`,
		inEtcds("queue", "TestUnknown_AnAcquireThatALaterVoidOvertookIsSentAgain_HD12")),
	change("acquire-that-was-overtaken-fails", "L1 HD12", etcd+"internal/queue/transactions.go",
		`if q.cluster.Sending().Epoch != sent.Epoch {`, `if epochs = attempts; q.cluster.Sending().Epoch != sent.Epoch {`,
		inEtcds("queue", "TestUnknown_AnAcquireThatALaterVoidOvertookIsSentAgain_HD12")),
	change("void-that-was-overtaken-leaves-its-key", "L1 HD12", etcd+"internal/queue/transactions.go",
		`if err != nil || resp.Succeeded {`, `if err != nil || true {`,
		inEtcds("queue", "TestUnknown_AVoidThatALaterOneOvertookDeletesItsKey_HD12")),
	change("void-sent-twice-deletes-the-next-key-of-the-name", "F2 HD12", etcd+"internal/queue/transactions.go",
		`).Else(clientv3.OpGet(p.key())))
	if err != nil || resp.Succeeded {`, `).Else(clientv3.OpDelete(p.key())))
	if err != nil || true {`,
		inEtcd("TestMutexKeys_LateRequestsLeaveTheNextAcquisitionAlone_F2_HD12")),
	change("thousands-are-cleared-away-at-once", "L1", etcd+"internal/queue/cleaner.go",
		`if !c.running {`, `if c.queues != nil {`,
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
	change("use-of-a-longer-name-starves-the-shorter", "L1", etcd+"internal/queue/line.go",
		` || l.queues.cluster.Keys.HidesWaiters(l.resource)`, ``,
		inEtcd("TestMutexKeys_ALongerNameCountsAsContended_L1")),
}
