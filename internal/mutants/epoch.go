package mutants

const epochs = "internal/epoch/"

// inEpoch is a test of what compares and raises epochs.
func inEpoch(name string) Test { return Test{"internal/epoch", name} }

// epochMutants are in what compares and raises the epoch of etcd and databases.
var epochMutants = []Mutant{
	change("bump-goes-by-etcd-alone", "N20", epochs+"state.go",
		"next := max(inEtcd, inDatabases) + 1", "next := inEtcd + 1",
		inEpoch("TestNext_IsAboveWhatWasAccepted_N20_HC2")),
	change("bump-takes-a-slip-for-an-epoch", "HC2", epochs+"state.go",
		`case inEtcd > s.accepted() && trust == "":`, `case false:`,
		inFencectl("TestEpochBump_UndoesASlipThatNoDatabaseHasAccepted_HC2")),
	change("bump-lowers-what-a-database-accepted", "N20", epochs+"state.go",
		"inEtcd == inDatabases && !s.unreadable():", "false:",
		inFencectl("TestEpochBump_UndoesASlipThatNoDatabaseHasAccepted_HC2")),
	change("bump-is-stuck-at-a-key-beside-an-accepted-one", "L1", epochs+"state.go",
		"inEtcd == inDatabases && !s.unreadable():", "inEtcd == inDatabases:",
		inEpoch("TestNext_IsAboveWhatWasAccepted_N20_HC2")),
	change("bump-forgets-what-an-earlier-attempt-wrote", "N20", "cmd/fencectl/epoch_bump.go",
		"append(b.earlier, b.done...)", "nil",
		inFencectl("TestEpochBump_SaysWhatAnEarlierAttemptWrote_N20")),
	change("bump-raises-a-database-once-for-each-url", "N20", "cmd/fencectl/epoch_bump.go",
		"len(b.done) == 0 || !raise.Is(now.Raised)", "true || !raise.Is(now.Raised)",
		inFencectl("TestEpochBump_OfOneDatabaseUnderTwoNames_N20")),
	change("epochs-that-differ-are-in-step", "N20", epochs+"state.go",
		"case key.Number < d.Number:\n\t\treturn Behind\n", "",
		inEpoch("TestCompare_SaysWhyClaimsAreRejected_N20_HC2")),
	change("epoch-is-put-over-another", "N20", epochs+"key.go",
		`clientv3.Compare(clientv3.ModRevision(seen.Key), "=", seen.KeyRevision)`, `clientv3.Compare(clientv3.ModRevision(seen.Key), ">", -1)`,
		inEpoch("TestPut_OnlyOverWhatWasSeen_N20")),
	change("epoch-is-put-into-another-etcd", "HD6", epochs+"key.go",
		"case h.ClusterId != seen.ClusterID:", "case false:",
		inEpoch("TestPut_IntoAnotherStateIsAnError_HD5_HD6")),
	change("database-is-raised-to-where-it-is", "N20", epochs+"raise.go",
		"where one and epoch < $1", "where one and epoch <= $1",
		inEpoch("TestRaise_OnlyUp_N20")),
	change("raise-leaves-no-mark", "HC2", epochs+"raise.go",
		"set epoch = $1, token = $2 where", "set epoch = $1, token = $2 - $2 where",
		inEpoch("TestRaise_FreesAResourceFromAnAbsurdToken_HC2")),
	change("fences-epoch-is-forgotten", "N20", epochs+"database.go",
		"d.Number = max(d.Number, *epoch)", "_ = *epoch",
		inEpoch("TestRead_TakesTheFencesEpochIfItIsHigher_N20")),
	change("raises-can-be-rewritten", "G5", schemaSQL,
		"alter table {{schema}}.epoch_raise enable always trigger", "alter table {{schema}}.epoch_raise disable trigger",
		inPostgres("TestEpochRaise_IsOnlyAppendedTo_G5")),
}
