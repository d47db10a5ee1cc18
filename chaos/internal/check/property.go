package check

// property is one thing that a run is judged by.
type property struct {
	name, title string
	irrelevant  func(r *Record) string // why it says nothing about the run; empty if it does say something
	judge       func(v *view, t *tally)
}

// properties are in the order of All.
var properties = []property{
	{"I1", "accepted tokens never fall, and positions have no gaps", ofFenced, tokens},
	{"I2", "nothing is sold twice, oversold or lost", ofAnyStock, conservation},
	{"I3", "an operation takes effect at most once, and as it was answered", ofAnyStock, outcomes},
	{"I4", "what was acknowledged is there at the end", ofAnyStock, acknowledged},
	{"I5", "after a claim nothing of a lower token is accepted", ofFenced, register},
	{"I6", "a refusal as stale has a higher claim before it", ofFenced, refusals},
	{"I7", "every accepted token is that of a lock key of its resource", ofFenced, provenance},
	{"I8", "history, data, log and workers agree", ofFenced, agreement},
	{Progress, "with the faults over everything makes progress, and nothing is left behind", ofAny, progress},
	{"I10", "no guarded change is without its entry", ofFencedStock, recorded},
	{"I11", "the run met what it was meant to meet", ofMeetings, meetings},
	{"I12", "nobody owns a lock whose turn has not come", ofFenced, ownership},
	{"run", "operations and processes come to an end, and to that of their script", ofAny, run},
	{"workload", "the workload's own check passes", ofAny, workload},
}

// Progress is the property that says that nothing is locked for ever.
const Progress = "I9"

// OfData are the properties that say what became of the data, those that can be asked
// of a control.
func OfData() []string { return []string{"I2", "I3", "I4", "workload"} }

// All judges a run by every property, in the order of their numbers; what the
// workload itself says comes last.
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
