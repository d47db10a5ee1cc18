package fencekit_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// named matches a name of an exported package as pages write it: `guard.Config.MaxRun`.
var named = regexp.MustCompile("`[*&]?(\\w+)\\.([A-Z]\\w*)(?:\\.([A-Z]\\w*))?[`({]")

// The names of Go that the pages cite are there. What the changelog and decisions
// cite may have gone since.
func TestDocs_CiteNamesThatExist(t *testing.T) {
	packages := exported(t)
	require.Contains(t, packages["guard"], "Config.MaxRun")
	texts(t, func(path, text string) {
		if filepath.Ext(path) != ".md" || path == "CHANGELOG.md" || strings.HasPrefix(path, "docs/adr/") {
			return
		}
		for _, name := range named.FindAllStringSubmatch(text, -1) {
			names, ours := packages[name[1]]
			if !ours {
				continue
			}
			if !names[name[2]] {
				t.Errorf("%s cites %s.%s, which is not there", path, name[1], name[2])
			} else if name[3] != "" && !names[name[2]+"."+name[3]] {
				t.Errorf("%s cites %s.%s.%s, which is not there", path, name[1], name[2], name[3])
			}
		}
	})
}

// exported returns the exported names of each package outside internal and
// examples, with the fields and methods of its types.
func exported(t *testing.T) map[string]map[string]bool {
	t.Helper()
	packages := map[string]map[string]bool{}
	texts(t, func(path, text string) {
		inside := strings.Contains("/"+path, "/internal/") || strings.HasPrefix(path, "examples/")
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || inside {
			return
		}
		tree, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		names := packages[tree.Name.Name]
		if names == nil {
			names = map[string]bool{}
			packages[tree.Name.Name] = names
		}
		for _, decl := range tree.Decls {
			declare(names, decl)
		}
	})
	delete(packages, "main")
	return packages
}

func declare(names map[string]bool, decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv == nil {
			names[decl.Name.Name] = true
			return
		}
		names[receiver(decl.Recv.List[0].Type)+"."+decl.Name.Name] = true
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					names[name.Name] = true
				}
			case *ast.TypeSpec:
				names[spec.Name.Name] = true
				declareFields(names, spec)
			}
		}
	}
}

func declareFields(names map[string]bool, spec *ast.TypeSpec) {
	var fields *ast.FieldList
	switch typ := spec.Type.(type) {
	case *ast.StructType:
		fields = typ.Fields
	case *ast.InterfaceType:
		fields = typ.Methods
	default:
		return
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			names[spec.Name.Name+"."+name.Name] = true
		}
	}
}

// receiver returns the name of a method's type.
func receiver(typ ast.Expr) string {
	switch typ := typ.(type) {
	case *ast.StarExpr:
		return receiver(typ.X)
	case *ast.IndexExpr:
		return receiver(typ.X)
	case *ast.Ident:
		return typ.Name
	}
	return ""
}
