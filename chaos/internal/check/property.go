package check

// property is one property that a run is checked for.
type property struct {
	name, title string
	irrelevant  func(r *Record) string // why it doesn't apply to the run; empty if it does
	judge       func(v *view, t *tally)
}

// properties are in the order of All.
var properties = []property{
	{"I1", "accepted tokens never fall, and positions have no gaps", ofFenced, tokens},
	{"I2", "nothing is sold twice, oversold or lost", ofAnyStock, conservation},
	{"I3", "an operation takes effect at most once, and as its outcome says", ofAnyStock, outcomes},
	{"I4", "every acknowledged operation is in the data at the end", ofAnyStock, acknowledged},
	{"I5", "after a claim nothing of a lower token is accepted", ofFenced, register},
	{"I6", "every rejection as stale follows the claim of a higher token", ofFenced, rejections},
	{"I7", "every accepted token is that of a lock key of its resource", ofFenced, provenance},
	{"I8", "history, data, write-ahead log and workers agree", ofFenced, agreement},
	{Progress, "after the faults end every resource makes progress, and no lock key is left", ofAny, progress},
	{"I10", "every change of guarded data has its entry", ofFencedStock, recorded},
	{"I11", "everything that the scenario requires happened", ofRequired, required},
	{"I12", "a lock is granted only to the first of its queue", ofFenced, ownership},
	{"I13", "the history verifies, and what is tampered with is found", ofFenced, verified},
	{"run", "operations and processes end, as the script expects", ofAny, run},
	{"workload", "the workload's own check passes", ofAny, workload},
}

// Progress is the property that no resource keys locked.
const Progress = "I9"

// OfData are the properties of the data: those that a control can violate.
func OfData() []string { return []string{"I2", "I3", "I4", "workload"} }

// All checks a run for every property, in the order of their numbers; the workload's own
// check comes last.
func All(r *Record) []Finding {
	v := newView(r)
	findings := make([]Finding, 0, len(properties))
	for _, p := range properties {
		findings = append(findings, p.find(v))
	}
	return findings
}

func (p property) find(v *view) Finding {
	f := Finding{Property: p.name, Title: p.title, Status: Irrelevant, Detail: p.irrelevant(v.Record)}
	if f.Detail != "" {
		return f
	}
	t := &tally{}
	p.judge(v, t)
	f.Status, f.Detail, f.Examples = t.status(), t.detail(), t.examples
	return f
}

func ofAny(*Record) string { return "" }

func ofFenced(r *Record) string {
	if !r.Fenced {
		return "a control has no fence"
	}
	return ""
}

func ofAnyStock(r *Record) string {
	if !r.Stock {
		return "only the workload itself knows what its operations leave in the data"
	}
	return ""
}

func ofFencedStock(r *Record) string {
	if why := ofFenced(r); why != "" {
		return why
	}
	return ofAnyStock(r)
}
