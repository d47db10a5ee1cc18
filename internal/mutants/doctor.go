package mutants

const (
	doctor         = "internal/doctor/"
	doctorsCommand = "cmd/fencectl/doctor_output.go"
)

// inDoctor is a test of what examines an installation.
func inDoctor(name string) Test { return Test{"internal/doctor", name} }

// doctorMutants miss what is wrong with an installation, or make light of it.
var doctorMutants = []Mutant{
	change("doctor-takes-a-violation-for-ok", "HB12", doctorsCommand,
		"{doctor.Violated, cli.ExitViolated}, ", "",
		inFencectl("TestDoctor_TheExitCodeIsThatOfTheWorstFinding")),
	change("doctor-prefers-inconclusive-to-not-ready", "HD7", doctorsCommand,
		"{doctor.NotReady, cli.ExitNotReady}, {doctor.Inconclusive, cli.ExitInconclusive}", "{doctor.Inconclusive, cli.ExitInconclusive}, {doctor.NotReady, cli.ExitNotReady}",
		inFencectl("TestDoctor_TheExitCodeIsThatOfTheWorstFinding")),
	change("doctor-makes-light-of-a-deleted-fence", "HB12", doctor+"catalog.go",
		`ID: "fence-deleted", Severity: Violated`, `ID: "fence-deleted", Severity: Warning`,
		inDoctor("TestGuide_ListsAllFindings")),
	change("doctor-forgets-a-failed-check", "HF3", doctor+"examine.go",
		"r.Findings = append(r.Findings, c.failed(s, err))", "_ = c.failed",
		inDoctor("TestExamine_SaysWhatALimitLeftOut")),
	change("doctor-stops-without-a-word", "HF3", doctor+"fences.go",
		"last = id; time.Now().After(deadline) {\n\t\t\treturn fmt.Errorf(", "last = id; time.Now().After(deadline) {\n\t\t\treturn nil\n\t\t\t_ = fmt.Errorf(",
		inDoctor("TestExamine_SaysWhatALimitLeftOut")),
	change("doctor-skips-single-gaps", "HB12", doctor+"fences.go",
		"where high > low + 1", "where high > low + 2",
		inDoctor("TestExamine_FindsDeletedFences_HB12")),
	change("doctor-skips-the-last-entry", "HF3", doctor+"fences.go",
		"last < seq\n", "last < 0\n",
		inDoctor("TestExamine_FindsLostEntriesAtTheEnds_HF3")),
	change("doctor-enables-a-changed-trigger-as-it-is", "HC1", doctor+"definitions.go",
		`} else if x.Found != "" {`, `} else if x.Found == "?" {`,
		inDoctor("TestTriggers_AreRestored")),
	change("doctor-does-not-look-at-protected-tables", "P5", doctor+"protection.go",
		`where problem <> 'the table is gone'`, `where problem = 'the table is gone'`,
		inDoctor("TestExamine_FindsBrokenProtection_P5")),
	change("doctor-alarms-at-tokens-granted-meanwhile", "HD5", doctor+"drift.go",
		"case above <= 0:\n", "case above < -50:\n",
		inDoctor("TestAhead_TellsAFalseGrantFromAnOlderEtcd_HC2_HD5")),
	change("doctor-takes-a-false-token-for-an-older-etcd", "HC2", doctor+"drift.go",
		"case above > epoch.FarAhead:", "case above > 1<<50:",
		inDoctor("TestAhead_TellsAFalseGrantFromAnOlderEtcd_HC2_HD5")),
	change("doctor-forgets-that-the-database-went-back", "HE1, HE4", doctor+"rejections.go",
		"epoch >= (select max(epoch)", "epoch > (select max(epoch)",
		inDoctor("TestExamine_FindsThatTheDatabaseWentBack_HE1_HE4")),
	change("doctor-leaves-checks-out-in-silence", "HD5", doctor+"examine.go",
		"if len(left) > 0 {", "if len(left) > 99 {",
		inFencectl("TestDoctor_FindsAnEpochKeyWithoutAnEpoch")),
	change("doctor-does-not-examine-the-etcd-of-a-variable", "HD5", "internal/cli/variables.go",
		"f.Changed = true", "f.Changed = false",
		inFencectl("TestDoctor_ExaminesTheEtcdOfAVariable")),
	change("doctor-leaves-the-prefix-out-of-a-bump", "N20", "cmd/fencectl/doctor_commands.go",
		`"etcd-endpoints", "etcd-prefix", `, `"etcd-endpoints", `,
		inFencectl("TestDoctor_CommandsRepeatItsFlags")),
	change("doctor-prints-a-password", "N20", "cmd/fencectl/doctor_commands.go",
		"u.User = url.User(u.User.Username())", "_ = u.User.Username()",
		inFencectl("TestDoctor_CommandsRepeatItsFlags")),
	change("doctor-takes-copies-of-a-shard-for-two-shards", "HB12", doctor+"shards.go",
		"return a != b && (", "return (",
		inDoctor("TestExamine_FindsShardsThatDisagree")),
}
