package report

import (
	"fmt"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/result"
)

// property is a property's findings in all runs under Fencekit.
type property struct {
	Name, Title                           string
	Held, Violated, Unchecked, Irrelevant int
	Class                                 string
	Detail                                string   // of the first run with the worst finding
	Examples                              []string // counterexamples with their run, the first few

	rank int // of Detail
}

// maxExamples bounds the counterexamples of a property.
const maxExamples = 8

// propertiesOf adds up findings, in the order of the first run.
func propertiesOf(suite *result.Suite) []*property {
	var all []*property
	byName := map[string]*property{}
	for i := range suite.Runs {
		r := &suite.Runs[i]
		if r.Group != result.Fenced {
			continue
		}
		for _, f := range r.Findings {
			p := byName[f.Property]
			if p == nil {
				p = &property{Name: f.Property, Title: f.Title}
				byName[f.Property] = p
				all = append(all, p)
			}
			p.add(r, f)
		}
	}
	for _, p := range all {
		switch {
		case p.Violated > 0:
			p.Class = "bad"
		case p.Unchecked > 0:
			p.Class = "nothing"
		case p.Held > 0:
			p.Class = "ok"
		}
	}
	return all
}

func (p *property) add(r *result.Run, f check.Finding) {
	rank := 0
	switch f.Status {
	case check.Held:
		p.Held++
		rank = 1
	case check.Violated:
		p.Violated++
		rank = 3
	case check.Irrelevant:
		p.Irrelevant++
	default:
		p.Unchecked++
		rank = 2
	}
	if p.Detail == "" && rank == 0 {
		p.Detail = cut(f.Detail)
	}
	if rank > p.rank {
		p.rank, p.Detail = rank, cut(fmt.Sprintf("%s: %s", r, f.Detail))
	}
	for _, e := range f.Examples {
		if len(p.Examples) < maxExamples {
			p.Examples = append(p.Examples, cut(fmt.Sprintf("%s: %s", r, e)))
		}
	}
}
