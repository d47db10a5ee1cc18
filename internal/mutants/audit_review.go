package mutants

// reviewMutants conclude more than the history shows.
var reviewMutants = []Mutant{
	change("report-answers-for-what-was-pruned", "HF4", "internal/review/pruned.go",
		`and c.latest >= $2`, `and c.latest >= $2 and false`, inReview("TestReport_DoesNotAnswerForWhatWasPruned")),
	change("report-goes-by-the-time-of-what-is-left", "HF4", "internal/review/pruned.go",
		`and c.latest >= $2`, `and e.at >= $2`, inReview("TestReport_DoesNotAnswerForWhatWasPrunedBeforeTheClockWentBack")),
	change("report-forgets-earlier-prunes", "HF4", retentionSQL,
		`new.latest := greatest(old.latest, new.latest);`, `null;`, inPostgres("TestPrune_KeepsTheLatestTime")),
	change("report-takes-any-prune-for-one-of-its-period", "HF4", retentionSQL,
		`new.latest := (select max(at) `, `perform (select max(at) `, inPostgres("TestPrune_KeepsTheLatestTime")),
	change("report-trusts-what-does-not-verify", "HF3", "internal/review/report_answer.go",
		`case report.Verified.TotalFindings > 0:`, `case report.Verified.TotalFindings < 0:`, inReview("TestReport_SaysWhatDoesNotVerify")),
	change("report-answers-for-time-to-come", "HF3", "internal/review/report_span.go",
		`if asked.Before(report.Until) {`, `if asked.Before(report.From) {`, inReview("TestReport_AnswersForWhatHasPassed")),
	change("report-answers-for-before-the-record", "HF3", "internal/review/report_answer.go",
		`case report.lacksAll():`, `case false:`, inReview("TestReport_SaysNothingOfTheTimeBeforeTheRecord")),
	change("why-concludes-from-what-was-pruned", "HF4", "internal/review/why_entry.go",
		"if x.Pruned != nil {\n\t\tconclusion", "if x.Pruned != nil && false {\n\t\tconclusion", inReview("TestWhy_DoesNotConcludeFromWhatWasPruned")),
	change("why-takes-a-name-for-a-pattern", "HF3", "internal/review/why_entry.go",
		`audit.Filter{Resource: x.Resource, Op:`, `audit.Filter{Resources: x.Resource, Op:`, inReview("TestWhy_TakesNamesLiterally")),
}

func inReview(name string) Test { return Test{"internal/review", name} }
