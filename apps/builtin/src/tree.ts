/** As much of a page's tree as we touch: the DOM's own names, without its types, which are a browser's. */
export interface TreeNode {
  readonly nodeType: number;
  readonly nodeName: string;
  readonly parentNode: TreeNode | null;
  readonly firstChild: TreeNode | null;
  readonly nextSibling: TreeNode | null;
  textContent: string | null;
  remove(): void;
}

export interface TreeElement extends TreeNode {
  readonly parentElement: TreeElement | null;
  readonly firstElementChild: TreeElement | null;
  readonly nextElementSibling: TreeElement | null;
  readonly previousElementSibling: TreeElement | null;
  getAttribute(name: string): string | null;
  setAttribute(name: string, value: string): void;
  removeAttribute(name: string): void;
}

export interface Tree {
  readonly documentElement: TreeElement;
  readonly body: TreeElement;
  querySelector(selector: string): TreeElement | null;
}

const ELEMENT = 1;

export function isElement(node: TreeNode): node is TreeElement {
  return node.nodeType === ELEMENT;
}
