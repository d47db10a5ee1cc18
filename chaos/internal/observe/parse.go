package observe

import (
	"fmt"
	"strings"
)

// parser parses a change as PostgreSQL's test_decoding prints it:
//
//	table public.t: UPDATE: old-key: id[integer]:1 new-tuple: id[integer]:2 name[text]:'it''s'
//
// Identifiers and types are quoted as in SQL where necessary; literals double their quotes,
// and backslashes are ordinary characters.
type parser struct {
	text string
	at   int
}

// parseChanges parses the line of a change: of one table, or of all tables of a TRUNCATE.
func parseChanges(text string) ([]Change, error) {
	p := &parser{text: text}
	changes, err := p.changes()
	if err != nil {
		return nil, fmt.Errorf("%w at byte %d of %q", err, p.at, text)
	}
	return changes, nil
}

func (p *parser) changes() ([]Change, error) {
	if err := p.expect("table "); err != nil {
		return nil, err
	}
	var changes []Change
	for more := true; more; more = p.skip(", ") {
		table, err := p.table()
		if err != nil {
			return nil, err
		}
		changes = append(changes, Change{Table: table})
	}
	if err := p.expect(": "); err != nil {
		return nil, err
	}
	action, row, err := p.change()
	for i := range changes {
		changes[i].Action, changes[i].Row = action, row
	}
	if err == nil && action != "truncate" && len(changes) > 1 {
		err = fmt.Errorf("%s of several tables", action)
	}
	return changes, err
}

// table is a name with its schema.
func (p *parser) table() (string, error) {
	schema, err := p.identifier()
	if err != nil {
		return "", err
	}
	if err := p.expect("."); err != nil {
		return "", err
	}
	name, err := p.identifier()
	return schema + "." + name, err
}

func (p *parser) change() (action string, row map[string]string, err error) {
	switch {
	case p.skip("INSERT:"):
		row, err = p.row()
		return "insert", row, err
	case p.skip("DELETE:"):
		row, err = p.row()
		return "delete", row, err
	case p.skip("UPDATE:"):
		if p.skip(" old-key:") {
			if _, err = p.columns(); err == nil {
				err = p.expect(" new-tuple:")
			}
		}
		if err == nil {
			row, err = p.row()
		}
		return "update", row, err
	case p.skip("TRUNCATE:"):
		p.at = len(p.text) // options
		return "truncate", nil, nil
	}
	return "", nil, fmt.Errorf("an unknown action")
}

// row parses all columns up to the end of the line; nil if the line has none.
func (p *parser) row() (map[string]string, error) {
	if p.skip(" (no-tuple-data)") {
		return nil, p.end()
	}
	row, err := p.columns()
	if err != nil {
		return nil, err
	}
	return row, p.end()
}

// columns parses the columns that follow, without NULLs and without large values that
// didn't change and are not printed.
func (p *parser) columns() (map[string]string, error) {
	row := map[string]string{}
	for p.at < len(p.text) && !strings.HasPrefix(p.text[p.at:], " new-tuple:") {
		if err := p.expect(" "); err != nil {
			return nil, err
		}
		name, err := p.identifier()
		if err != nil {
			return nil, err
		}
		if err := p.typeName(); err != nil {
			return nil, err
		}
		if err := p.expect(":"); err != nil {
			return nil, err
		}
		value, known, err := p.value()
		if err != nil {
			return nil, err
		}
		if known {
			row[name] = value
		}
	}
	return row, nil
}

// identifier parses a name, quoted or not.
func (p *parser) identifier() (string, error) {
	if p.skip(`"`) {
		return p.quoted('"')
	}
	start := p.at
	for p.at < len(p.text) && bare(p.text[p.at]) {
		p.at++
	}
	if p.at == start {
		return "", fmt.Errorf("no name")
	}
	return p.text[start:p.at], nil
}

// bare reports whether a name without quotes may have a byte.
func bare(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '_'
}

// quoted parses a text up to its closing quote; a doubled quote belongs to the text.
func (p *parser) quoted(quote byte) (string, error) {
	var value strings.Builder
	for {
		length := strings.IndexByte(p.text[p.at:], quote)
		if length < 0 {
			return "", fmt.Errorf("a quote that doesn't end")
		}
		value.WriteString(p.text[p.at : p.at+length])
		p.at += length + 1
		if !p.skip(string(quote)) {
			return value.String(), nil
		}
		value.WriteByte(quote)
	}
}

// typeName skips a type in brackets, as [character varying(3)[]] or [public."]"].
func (p *parser) typeName() error {
	if err := p.expect("["); err != nil {
		return err
	}
	for depth := 1; depth > 0; {
		switch {
		case p.at == len(p.text):
			return fmt.Errorf("a type that doesn't end")
		case p.skip(`"`):
			if _, err := p.quoted('"'); err != nil {
				return err
			}
		case p.skip("["):
			depth++
		case p.skip("]"):
			depth--
		default:
			p.at++
		}
	}
	return nil
}

// value parses a literal: a quoted one, bits, or a bare word up to the next space.
// known is false if it is NULL, or not printed.
func (p *parser) value() (value string, known bool, err error) {
	if p.skip("'") || p.skip("B'") {
		value, err = p.quoted('\'')
		return value, err == nil, err
	}
	length := strings.IndexByte(p.text[p.at:], ' ')
	if length < 0 {
		length = len(p.text) - p.at
	}
	if length == 0 {
		return "", false, fmt.Errorf("no value")
	}
	value = p.text[p.at : p.at+length]
	p.at += length
	return value, value != "null" && value != "unchanged-toast-datum", nil
}

// skip skips text if it comes next, and reports whether it did.
func (p *parser) skip(text string) bool {
	if !strings.HasPrefix(p.text[p.at:], text) {
		return false
	}
	p.at += len(text)
	return true
}

func (p *parser) expect(text string) error {
	if !p.skip(text) {
		return fmt.Errorf("no %q", text)
	}
	return nil
}

func (p *parser) end() error {
	if p.at < len(p.text) {
		return fmt.Errorf("more than was expected")
	}
	return nil
}
