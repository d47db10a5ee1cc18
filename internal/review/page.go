package review

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/template"
	"time"
	"unicode"
	"unicode/utf8"
)

//go:embed report.tmpl
var reportSentences string

//go:embed why.tmpl
var whySentences string

var words = template.FuncMap{
	"clock": clock, "minutes": minutes, "list": list, "lasting": lasting, "counted": counted,
	"seconds": func(s float64) string { return lasting(time.Duration(s * float64(time.Second))) },
}

var sentences = func() *template.Template {
	t := template.New("").Funcs(words)
	t.Funcs(template.FuncMap{"sentence": func(name string, data any) (string, error) { return execute(t, name, data) }})
	return template.Must(t.Parse(whiteSpace.ReplaceAllStringFunc(reportSentences+whySentences, func(part string) string {
		if strings.TrimSpace(part) == "" {
			return space
		}
		return part
	})))
}()

// space marks white space in the source of a template. A sentence has one space for it between two words, and none
// elsewhere. White space in names and ids stays as it is.
const space = "\x00"

// whiteSpace matches white space in the source of a template, and actions with what they trim.
var whiteSpace = regexp.MustCompile(`(?s)(?:\s+\{\{-|\{\{).*?(?:-\}\}\s*|\}\})|\s+`)

// sentence returns the text of a template without the line breaks of its source. If no template has the name, it
// takes that of the name's first word.
func sentence(name string, data any) (string, error) { return execute(sentences, name, data) }

func execute(t *template.Template, name string, data any) (string, error) {
	one := t.Lookup(name)
	if one == nil {
		name, _, _ = strings.Cut(name, " ")
		one = t.Lookup(name)
	}
	var b strings.Builder
	if err := one.Execute(&b, data); err != nil {
		return "", fmt.Errorf("review: %w", err)
	}
	words := strings.FieldsFunc(b.String(), func(r rune) bool { return string(r) == space })
	return strings.Join(words, " "), nil
}

// Fact is a named paragraph of a page.
type Fact struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

func tell(names []string, data any) ([]Fact, error) {
	told := []Fact{}
	for _, name := range names {
		text, err := sentence(name, data)
		if err != nil {
			return nil, err
		}
		if text != "" {
			told = append(told, Fact{name, text})
		}
	}
	return told, nil
}

func clock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.000") }

func minutes(at time.Time) string {
	if at.Equal(at.Truncate(time.Minute)) {
		return at.UTC().Format("2006-01-02 15:04")
	}
	return clock(at)
}

func lasting(d time.Duration) string {
	days, hours, minutes := int(d.Hours())/24, int(d.Hours())%24, int(d.Minutes())%60
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(d, 0).Milliseconds()) // a server's clock can go back
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Truncate(time.Second/10).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", minutes, int(d.Seconds())%60)
	case days == 0:
		return fmt.Sprintf("%d h %d min", hours, minutes)
	}
	return fmt.Sprintf("%d d %d h", days, hours)
}

func counted(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// listed is how many of several things are named.
const listed = 10

func list(all []string) string {
	text := strings.Join(all[:min(listed, len(all))], ", ")
	if more := len(all) - listed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

const footnote = "Times are those of the database's clock, in UTC; that of a write is from just before its commit. " +
	"The record is reported as it is; \"fencectl audit verify\" shows whether anyone has changed it."

// page is an answer as far as there is any.
type page struct {
	Title, Conclusion string
	Facts             []Fact
	Day               string // of all lines; or ""
	Lines             []historyLine
	Sections          []section
	Footnote          string
}

// text writes p with lines of at most width characters, as far as words allow.
func (p page) text(w io.Writer, width int) error {
	var b strings.Builder
	if p.Title != "" {
		fmt.Fprintf(&b, "%s\n\n", visible(p.Title))
	}
	fmt.Fprintf(&b, "%s\n", wrap(p.Conclusion, width, ""))
	writeFacts(&b, p.Facts, width)
	p.writeHistory(&b, width)
	for _, s := range p.Sections {
		s.write(&b, width)
	}
	if p.Footnote != "" {
		fmt.Fprintf(&b, "\n%s\n", wrap(p.Footnote, width, ""))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeFacts(b *strings.Builder, facts []Fact, width int) {
	indent := 0
	for i, f := range facts {
		if i == 0 {
			b.WriteString("\n")
		}
		indent = max(indent, len(f.Name)+2)
	}
	for _, f := range facts {
		fmt.Fprintf(b, "%-*s%s\n", indent, f.Name, wrap(f.Text, width-indent, strings.Repeat(" ", indent)))
	}
}

const minText = 20

func (p page) writeHistory(b *strings.Builder, width int) {
	if len(p.Lines) == 0 {
		return
	}
	row := func(mark, position, at, kind, text string) {
		line := fmt.Sprintf("%-1s %8s  %-*s  %-9s  ", mark, position, len(clock(time.Time{}))-len(p.Day), strings.TrimPrefix(at, p.Day), kind)
		b.WriteString(strings.TrimRight(line+wrap(text, max(width-len(line), minText), strings.Repeat(" ", len(line))), " ") + "\n")
	}
	b.WriteString("\n")
	row("", "POSITION", strings.TrimSpace(cmp.Or(p.Day, "TIME")), "WHAT", "BY WHOM")
	for _, line := range p.Lines {
		mark := ""
		if line.Asked {
			mark = ">"
		}
		row(mark, line.Position, line.At, line.Kind, line.Text)
	}
}

// historyLine is a row of the history; a gap has no kind.
type historyLine struct {
	Position, At, Kind, Text string
	Asked                    bool
}

// wrap breaks text between words into lines of at most width characters. Each but the first
// begins with indent, which width doesn't count.
func wrap(text string, width int, indent string) string {
	var b strings.Builder
	used := 0
	for i, word := range strings.Fields(text) {
		word = visible(word)
		length := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+length > width:
			b.WriteString("\n" + indent)
			used = 0
		default:
			b.WriteString(" ")
			used++
		}
		b.WriteString(word)
		used += length
	}
	return b.String()
}

// visible replaces what a terminal would obey instead of showing, such as line breaks
// and those that reverse the direction of text.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
