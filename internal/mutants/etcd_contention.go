package mutants

// contentionMutants are in how a holder learns that others wait, and in what a
// silent or refusing etcd does to it.
var contentionMutants = []Mutant{
	change("watch-that-fell-silent-is-waited-for", "L1", etcd+"watchstream.go",
		`case time.Since(s.unanswered[0].sent) >= s.cfg.RequestTimeout:`, `case false:`,
		inEtcd("TestSilentMember_AHolderLearnsThatOthersWait_L1")),
	change("watch-is-never-probed", "L1", etcd+"watchstream.go",
		`s.send(order{probe, s.lastID})`, ``,
		inEtcd("TestSilentMember_AHolderLearnsThatOthersWait_L1")),
	change("watch-that-is-quiet-is-broken", "L1", etcd+"watchstream.go",
		`case time.Since(s.unanswered[0].sent) >= s.cfg.RequestTimeout:`, `default:`,
		inEtcd("TestWatch_AQuietStreamStays")).
		and(Edit{etcd + "watchstream.go", "\ts.unanswered = s.unanswered[1:]\n", ""}),
	change("renewal-waits-for-the-silent-member", "L1", etcd+"renewals.go",
		"case <-beside.C:\n\t\t\tt.try(ctx, newRenewalStream())", "case <-beside.C:",
		inEtcd("TestSilentMember_ARenewalIsAnsweredByAnother_L1")),
	change("refused-watch-breaks-the-stream", "L1 HD8", etcd+"watchstream.go",
		`s.refused(s, watch.followed)`, `return fmt.Errorf("etcd: watch refused: %s", resp.CancelReason)`,
		inEtcd("TestRefused_AnObserverIsToldAndCostsOthersNothing_HD8")),
	change("expired-token-leaves-a-queue-unwatched", "L1 HD8", etcd+"followed.go",
		`s.end(errStaleStream)`, `return`,
		inEtcd("TestAuth_SurvivesTokensThatExpire_HD8")),
	change("waiter-that-may-not-look-is-not-told", "L1 HD8", etcd+"place.go",
		`p.denied <- err`, ``,
		inEtcd("TestRefused_AWaiterIsToldAndAHolderGivesWay_HD8")),
	change("holder-that-may-not-look-keeps-others-out", "L1 HD8", etcd+"place.go",
		"p.blind = true\n\t\tp.tellContended()\n", "",
		inEtcd("TestRefused_AWaiterIsToldAndAHolderGivesWay_HD8")),
}
