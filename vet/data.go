package vet

import (
	"cmp"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// checkResources finds columns that are updated under names of different kinds. It can't know which rows a call is
// about, so it is silent where a condition has a literal.
func (c *checker) checkResources() {
	first := map[string]*guarded{}
	for _, g := range c.guarded {
		if g.hold || !strings.HasPrefix(c.calls(g.call), module+"guard.") || strings.Contains(c.line(g.call), "_test.go:") {
			continue
		}
		kinds := c.kinds(g.call.Args[2])
		c.statements(g.body, func(_ []string, writes []write) {
			for _, w := range writes {
				before := first[w.column]
				if !w.updates || slices.Contains(kinds, "") {
					continue
				} else if before == nil {
					first[w.column] = g
				} else if others := c.kinds(before.call.Args[2]); !slices.ContainsFunc(kinds, func(kind string) bool { return slices.Contains(others, kind) }) {
					c.report(g.call.Args[2], "resource", "%s is updated under %s here, and under %s in %s: calls exclude each other only if they share a resource; name it alike, or name both in one call",
						w.column, strings.Join(kinds, ", "), strings.Join(others, ", "), filepath.Base(c.line(before.call)))
				}
			}
		})
	}
}

var kind = regexp.MustCompile(`^[^/:%]*[/:]?`)

// kinds returns what the names of resources begin with: sku/ for "sku/"+id, and "" for what isn't known.
func (c *checker) kinds(e ast.Expr) (kinds []string) {
	if text, ok := c.text(e); ok {
		return []string{kind.FindString(text)}
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return c.kinds(e.X)
	case *ast.Ident:
		return c.kinds(c.defs[c.root(e)])
	case *ast.CompositeLit:
		for _, element := range e.Elts {
			kinds = append(kinds, c.kinds(element)...)
		}
		return kinds
	case *ast.CallExpr:
		if c.calls(e) == "fmt.Sprintf" {
			return c.kinds(e.Args[0])
		}
		if s, ok := c.decls[c.callee(e)]; ok && len(s.body.List) == 1 { // a function that names the resource
			if r, ok := s.body.List[0].(*ast.ReturnStmt); ok && len(r.Results) == 1 {
				return c.kinds(r.Results[0])
			}
		}
	}
	return []string{""}
}

// source is columns that were read outside of guarded functions.
type source struct {
	columns []string
	line    int
}

// checkStale follows, in the order of the text, which variables have what was read outside of guarded functions, until
// such a function sets the same column to it, and neither reads nor compares it.
func (c *checker) checkStale() {
	stale := map[*types.Var]*source{}
	for n := range c.PreorderSeq((*ast.AssignStmt)(nil), (*ast.CallExpr)(nil)) {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok == token.ASSIGN || n.Tok == token.DEFINE {
				c.flow(stale, n.Lhs, n.Rhs)
			}
		case *ast.CallExpr:
			g := c.guardedAt(n.Pos())
			if g == nil {
				continue
			}
			column, from := c.stored(n, stale)
			c.statements(g.body, func(reads []string, _ []write) {
				if slices.Contains(reads, column) {
					from = nil
				}
			})
			if from != nil {
				c.report(n, "stale", "%s is set to what was read from it in line %d, before the call had the lock: others may have changed it meanwhile; read it in the guarded function", column, from.line)
			}
		}
	}
}

// flow notes what an assignment, or a call that fills its arguments, does to variables.
func (c *checker) flow(stale map[*types.Var]*source, targets, values []ast.Expr) {
	var from, read *source
	unknown := false
	for _, value := range values {
		from = cmp.Or(from, c.mentioned(stale, value))
		within(value, func(n ast.Node) {
			switch n := n.(type) {
			case *ast.CallExpr:
				unknown = unknown || len(n.Args) > 0 && isContext(c.TypesInfo.TypeOf(n.Args[0]))
				if c.guardedAt(n.Pos()) == nil && (c.withHandle(n) || c.around(c.callee(n)) != "") {
					c.statements(n, func(reads []string, _ []write) { read = &source{reads, c.Fset.Position(n.Pos()).Line} })
				}
			case *ast.UnaryExpr: // &v
				targets = append(slices.Clip(targets), n.X)
			}
		})
	}
	if read != nil || unknown {
		from = read
	}
	for _, target := range targets {
		if id, ok := target.(*ast.Ident); ok && c.root(id) != nil && c.TypesInfo.TypeOf(id) != types.Universe.Lookup("error").Type() {
			stale[c.root(id)] = from
		}
	}
}

// stored returns a column that a call sets to a stale value, itself or by way of parameters, and where that is from.
func (c *checker) stored(call *ast.CallExpr, stale map[*types.Var]*source) (column string, from *source) {
	stale = maps.Clone(stale)
	c.follow(call, map[*types.Func]bool{}, func(call *ast.CallExpr) {
		sql, args := c.sqlOf(call)
		_, writes := parse(sql)
		for _, w := range writes {
			for _, n := range w.params {
				if n < 1 || n > len(args) {
					continue
				}
				if of := c.mentioned(stale, args[n-1]); of != nil && slices.Contains(of.columns, w.column) {
					column, from = w.column, of
				}
			}
		}
		if fn := c.callee(call); fn != nil {
			for i := range min(fn.Signature().Params().Len(), len(call.Args)) {
				stale[fn.Signature().Params().At(i)] = c.mentioned(stale, call.Args[i])
			}
		}
	})
	return column, from
}

// mentioned returns where a variable in an expression is from.
func (c *checker) mentioned(stale map[*types.Var]*source, e ast.Expr) (from *source) {
	within(e, func(n ast.Node) {
		if id, ok := n.(*ast.Ident); ok {
			from = cmp.Or(from, stale[c.root(id)])
		}
	})
	return from
}

// within visits n, except functions and composite literals: what becomes of the values in those is too hard to tell.
func within(n ast.Node, visit func(ast.Node)) {
	ast.Inspect(n, func(n ast.Node) bool {
		visit(n)
		_, function := n.(*ast.FuncLit)
		_, composite := n.(*ast.CompositeLit)
		return !function && !composite
	})
}

// statements visits the SQL that n runs, as far as it is constant, also in functions of this package that it calls.
func (c *checker) statements(n ast.Node, visit func(reads []string, writes []write)) {
	seen := map[*types.Func]bool{}
	for n := range ast.Preorder(n) {
		if call, ok := n.(*ast.CallExpr); ok {
			c.follow(call, seen, func(call *ast.CallExpr) {
				if sql, _ := c.sqlOf(call); sql != "" {
					visit(parse(sql))
				}
			})
		}
	}
}

// follow visits a call, and those in the function that it calls, if that is of this package.
func (c *checker) follow(call *ast.CallExpr, seen map[*types.Func]bool, visit func(*ast.CallExpr)) {
	visit(call)
	fn := c.callee(call)
	if s, ok := c.decls[fn]; ok && !seen[fn] {
		seen[fn] = true
		for n := range ast.Preorder(s.body) {
			if inner, ok := n.(*ast.CallExpr); ok {
				c.follow(inner, seen, visit)
			}
		}
	}
}

// sqlOf returns the SQL that a call of, or with, a handle has as an argument, and the arguments behind it.
func (c *checker) sqlOf(call *ast.CallExpr) (sql string, args []ast.Expr) {
	for i, arg := range call.Args {
		if text, ok := c.text(arg); ok && sql == "" && c.withHandle(call) {
			sql, args = text, call.Args[i+1:]
		}
	}
	return sql, args
}

func (c *checker) withHandle(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && isHandle(c.TypesInfo.TypeOf(method.X)) ||
		slices.ContainsFunc(call.Args, func(arg ast.Expr) bool { return isHandle(c.TypesInfo.TypeOf(arg)) })
}

// text returns a constant string.
func (c *checker) text(e ast.Expr) (string, bool) {
	if value := c.TypesInfo.Types[e].Value; value != nil && value.Kind() == constant.String {
		return constant.StringVal(value), true
	}
	return "", false
}
