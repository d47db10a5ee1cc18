package mutants

// keysMutants are in what keeps the number of keys, and of requests about them, small.
var keysMutants = []Mutant{
	change("void-keys-of-a-session-add-up", "HD12", etcd+"txns.go",
		"\t\tclientv3.OpDelete(l.keys.voids(p.session.id), clientv3.WithRange(key)),\n", "",
		inEtcd("TestUnknown_ThousandsOfAcquiresInDoubtLeaveOneKey_HD12")),
	change("void-outlives-its-session", "HD12", etcd+"txns.go",
		`clientv3.OpPut(key, p.key, clientv3.WithLease(p.session.id))`, `clientv3.OpPut(key, p.key)`,
		inEtcd("TestUnknown_AnAcquireWhoseAnswerIsLostLeavesNothing_HD12")),
	change("void-rules-out-one-acquire-alone", "F2 HD12", etcd+"txns.go",
		`l.keys.void(p.session.id, p.number)), "=", 0).WithRange(l.endOfVoids(p))`, `l.keys.void(p.session.id, p.number)), "=", 0)`,
		inEtcd("TestUnknown_AnAcquireThatALaterVoidOvertookIsSentAgain_HD12")),
	change("acquire-that-was-overtaken-keeps-its-number", "L1 HD12", etcd+"acquire.go",
		`p.number = p.session.number()`, `p.number = max(p.number, 1)`,
		inEtcd("TestUnknown_AnAcquireThatALaterVoidOvertookIsSentAgain_HD12")),
	change("void-that-was-overtaken-leaves-its-key", "L1 HD12", etcd+"txns.go",
		`clientv3.Compare(clientv3.Value(p.key), "=", p.sent)}, []clientv3.Op`, `clientv3.Compare(clientv3.Value(p.key), "=", "")}, []clientv3.Op`,
		inEtcd("TestUnknown_AVoidThatALaterOneOvertookDeletesItsKey_HD12")),
	change("void-sent-twice-deletes-the-next-key-of-the-name", "F2 HD12", etcd+"txns.go",
		`[]clientv3.Cmp{clientv3.Compare(clientv3.Value(p.key), "=", p.sent)}`, `nil`,
		inEtcd("TestMutexKeys_LateRequestsLeaveTheNextAcquisitionAlone_F2_HD12")),
	change("thousands-are-cleared-away-at-once", "L1", etcd+"locker.go",
		`make(chan struct{}, clearers)`, `make(chan struct{}, 1<<20)`,
		inEtcd("TestUnknown_ThousandsOfAcquiresInDoubtLeaveOneKey_HD12")),
	change("thousands-that-expire-are-released-at-once", "L1", "guard/expire.go",
		`more := k.expiring < expirers`, `more := k.expiring >= 0`,
		Test{"guard", "TestKeepFor_ThousandsThatExpireTogetherAreReleasedAFewAtATime_L1"}),
}
