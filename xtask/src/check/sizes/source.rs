//! What the limits need of a Rust file: its lines, functions, modules and imports, without tests.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

/// The path of a module below the root of its crate: `[]` is the root.
pub type Module = Vec<String>;

/// The modules of a crate by their paths. A crate with a library and a program has two files for
/// the root.
#[derive(Debug, Default)]
pub struct Crate {
    modules: BTreeMap<Module, Vec<SourceFile>>,
}

/// One file, tests left out.
#[derive(Debug)]
pub struct SourceFile {
    /// Path in the checkout.
    pub path: String,
    /// Its module.
    pub module: Module,
    /// Its lines.
    pub lines: usize,
    /// Its functions with a body.
    pub functions: Vec<Function>,
    /// What its code names in other modules of the crate: absolute paths, with their lines.
    pub names: Vec<(Vec<String>, usize)>,
    /// What `use` makes available under a name: name and absolute path.
    pub imports: BTreeMap<String, Vec<String>>,
    /// Its modules that exist only in tests.
    tests: BTreeSet<String>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name, with its type in front.
    pub name: String,
    /// From its signature to its closing brace.
    pub lines: usize,
}

/// Returns the folder of the crate and the module of a file that is not for tests or benchmarks.
pub fn module_of(path: &str) -> Option<(&str, Module)> {
    let (folder, below) = path.strip_suffix(".rs")?.split_once("/src/")?;
    let mut module: Module = below.split('/').map(str::to_owned).collect();
    if module.iter().any(|part| part == "tests") {
        return None;
    }
    let last = module.last().map(String::as_str);
    if last == Some("mod") || module.len() == 1 && matches!(last, Some("lib" | "main")) {
        module.pop();
    }
    Some((folder, module))
}

impl Crate {
    /// Adds one file.
    pub fn add(&mut self, file: SourceFile) {
        let files = self.modules.entry(file.module.clone()).or_default();
        files.push(file);
    }

    /// Removes the files whose module, or one above it, exists only in tests.
    pub fn drop_tests(&mut self) {
        let tests: Vec<Module> = self
            .files()
            .flat_map(|file| {
                file.tests
                    .iter()
                    .map(|name| [file.module.clone(), vec![name.clone()]].concat())
            })
            .collect();
        self.modules
            .retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
    }

    /// Returns all files.
    pub fn files(&self) -> impl Iterator<Item = &SourceFile> {
        self.modules.values().flatten()
    }

    /// Returns the module in which a name is defined, through re-exports.
    pub fn defining_module(&self, name: &[String]) -> Module {
        self.resolve(name, 0)
    }

    fn resolve(&self, name: &[String], depth: usize) -> Module {
        let known = (0..=name.len())
            .rev()
            .find(|length| self.modules.contains_key(&name[..*length]))
            .unwrap_or(0);
        let (module, rest) = name.split_at(known);
        let reexport = rest.first().and_then(|item| {
            self.modules
                .get(module)?
                .iter()
                .find_map(|file| file.imports.get(item))
        });
        match reexport {
            // Two modules may export each other's names in a circle.
            Some(target) if depth < 8 && target != name => {
                self.resolve(&[target.as_slice(), &rest[1..]].concat(), depth + 1)
            }
            _ => module.to_vec(),
        }
    }
}

impl SourceFile {
    /// Reads a file.
    pub fn parse(path: &str, text: &str) -> anyhow::Result<Self> {
        let (_, module) = module_of(path).unwrap_or_default();
        let mut reader = Reader {
            scope: module.clone(),
            of_type: Vec::new(),
            file: Self {
                path: path.to_owned(),
                module,
                lines: text.lines().count(),
                functions: Vec::new(),
                names: Vec::new(),
                imports: BTreeMap::new(),
                tests: BTreeSet::new(),
            },
        };
        reader.visit_file(&syn::parse_file(text)?);
        Ok(reader.file)
    }
}

/// Collects what a file has while its tree is walked.
struct Reader {
    /// The module of what is read now: that of the file, or one within it.
    scope: Module,
    /// The types whose methods are read now.
    of_type: Vec<String>,
    file: SourceFile,
}

impl Reader {
    fn function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let last = body.brace_token.span.close().end().line;
        let name = signature.ident.to_string();
        let name = self.of_type.iter().cloned().chain([name]);
        self.file.functions.push(Function {
            name: name.collect::<Vec<_>>().join("::"),
            lines: last + 1 - first,
        });
    }

    /// Returns the absolute path of one that begins with `crate`, `self` or `super`.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let mut scope = self.scope.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => scope.clear(),
            "self" | "super" => {}
            _ => return None,
        }
        while let [first, others @ ..] = rest {
            match first.as_str() {
                "crate" | "self" => {}
                "super" => drop(scope.pop()),
                _ => break,
            }
            rest = others;
        }
        scope.extend_from_slice(rest);
        Some(scope)
    }

    fn import(&mut self, tree: &syn::UseTree, above: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(part) => {
                above.push(part.ident.to_string());
                self.import(&part.tree, above);
                above.pop();
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, above);
                }
            }
            syn::UseTree::Name(name) => self.imported(&name.ident, &name.ident, above),
            syn::UseTree::Rename(name) => self.imported(&name.ident, &name.rename, above),
            syn::UseTree::Glob(star) => {
                if let Some(path) = self.absolute(above) {
                    let line = star.star_token.span.start().line;
                    self.file.names.push((path, line));
                }
            }
        }
    }

    fn imported(&mut self, name: &syn::Ident, alias: &syn::Ident, above: &[String]) {
        let mut path = above.to_vec();
        if name != "self" {
            path.push(name.to_string());
        }
        let line = name.span().start().line;
        let within = || [self.scope.clone(), path.clone()].concat();
        // Without `crate`, `self` or `super` it is a module below this one, or another crate.
        let target = match self.absolute(&path) {
            Some(target) => {
                self.file.names.push((target.clone(), line));
                target
            }
            None => within(),
        };
        let alias = if alias == "self" {
            target.last().cloned().unwrap_or_default()
        } else {
            alias.to_string()
        };
        if self.scope == self.file.module {
            self.file.imports.insert(alias, target);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !only_in_tests(attributes) {
            return visit::visit_item(self, item);
        }
        if let syn::Item::Mod(module) = item {
            self.file.tests.insert(module.ident.to_string());
            if let Some((braces, _)) = &module.content {
                let first = module.mod_token.span.start().line;
                self.file.lines -= braces.span.close().end().line + 1 - first;
            }
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.scope.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.scope.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        if let ([_, _, ..], Some(absolute)) = (&parts[..], self.absolute(&parts)) {
            let line = path
                .segments
                .first()
                .map(|part| part.ident.span().start().line);
            self.file.names.push((absolute, line.unwrap_or_default()));
        }
        visit::visit_path(self, path);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !only_in_tests(&item.attrs) {
            self.function(&item.sig, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|part| part.ident.to_string()),
            _ => None,
        };
        self.of_type.extend(name.clone());
        visit::visit_item_impl(self, item);
        self.of_type
            .truncate(self.of_type.len() - usize::from(name.is_some()));
    }
}

/// Returns whether `#[cfg(test)]`, alone or in `all`, is among the attributes.
fn only_in_tests(attributes: &[syn::Attribute]) -> bool {
    fn needs_test(meta: &syn::Meta) -> bool {
        match meta {
            syn::Meta::Path(path) => path.is_ident("test"),
            syn::Meta::List(list) if list.path.is_ident("cfg") || list.path.is_ident("all") => list
                .parse_args_with(
                    syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated,
                )
                .is_ok_and(|inner| inner.iter().any(needs_test)),
            _ => false,
        }
    }
    attributes
        .iter()
        .any(|attribute| needs_test(&attribute.meta))
}
