// A canvas as wide as its place, as sharp as the screen, and drawn again with its component.
import { useEffect, useLayoutEffect, useRef, useState } from '../lib/base.js';

// draw: gets the pen and the width, whenever the component is drawn. Returns {box, canvas, width}: the refs of
// the place and of the canvas in it, and the width in pixels, 0 before it is known.
export function useCanvas(height, draw) {
  const box = useRef();
  const canvas = useRef();
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(([seen]) => setWidth(seen.target.clientWidth)); // it may come after the last draw
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    const element = canvas.current;
    element.width = width * ratio;
    element.height = height * ratio;
    element.style.width = `${width}px`;
    element.style.height = `${height}px`;
    const pen = element.getContext('2d');
    pen.scale(ratio, ratio);
    draw(pen, width);
  });
  return { box, canvas, width };
}

// A text at a point of the picture, within its width. tip: {x, y} in pixels.
export const putTip = ({ x, y }, width) => (element) => {
  if (!element) return;
  element.style.left = `${Math.max(0, Math.min(x + 12, width - element.offsetWidth))}px`;
  element.style.top = `${y + 16}px`;
};
